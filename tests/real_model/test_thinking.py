"""A model that reasons before it answers, from the search to the report.

The model is made by this test: SmolLM2-135M-Instruct, fine-tuned for a few steps to write
``<think>…</think>`` and then the answer. It says nothing about published reasoning models.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import gapft_harness
from gapft_harness.interactive.runs import Run
from tests.command import succeed

MODEL = os.environ.get("GAPFT_REAL_MODEL", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="GAPFT_REAL_MODEL: make test-real-model sets it")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TASK = """\
task: larger
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: pool.jsonl, test: audit.jsonl}}
training_split: train
test_split: test
doc_to_text: "Which number is larger, {{first}} or {{second}}?"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 34, until: []}
metadata:
  version: 1
  gapft: {verifier: math, keep: shortest}
"""
RECIPE = """\
name: thinking
data: {task: larger}
model:
  args: {pretrained: thinker, dtype: float32, device: cpu, batch_size: 64}
search: {k: 5, temperature: 1.5, top_p: 1.0}
conditions: [gapft]
seeds: [13]
budget: {n: 2}
training: {target_modules: [q_proj, v_proj], repetitions: 2, micro_batch: 4, dtype: float32}
"""
PROBLEMS = {"pool": 16, "audit": 8}
STEPS, BATCH, TRAINED_LAYERS = 7, 4, 15


def draw_pair(draws: random.Random) -> tuple[int, int]:
    first, second = draws.sample(range(10, 400), 2)
    return first, second


def write_thinker(folder: Path) -> None:
    """Fine-tune the upper layers of the model to reason and answer; write it as a model folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.chat_template = CHATML
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model.requires_grad_(False)
    for layer in model.model.layers[-TRAINED_LAYERS:]:
        layer.requires_grad_(True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
    draws = random.Random(1)

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
        return ids

    for _ in range(STEPS):
        rows, labels = [], []
        for first, second in (draw_pair(draws) for _ in range(BATCH)):
            larger = max(first, second)
            question = f"Which number is larger, {first} or {second}?"
            prompt = encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
            thought = f"<think>{first} or {second}: {larger} is more.</think>"
            response = encode(f"{thought}\n\n{larger}<|im_end|>")
            rows.append(torch.tensor(prompt + response))
            labels.append(torch.tensor([-100] * len(prompt) + response))
        pad = torch.nn.utils.rnn.pad_sequence
        batch = pad(rows, batch_first=True)  # right padding needs no mask in a causal model
        model(input_ids=batch, labels=pad(labels, True, -100)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, the task, and runs that train with and without reasoning."""
    run_folder = tmp_path_factory.mktemp("thinking")
    write_thinker(run_folder / "thinker")
    (run_folder / "larger.yaml").write_text(TASK, "utf-8")
    (run_folder / "recipe.yaml").write_text(RECIPE, "utf-8")
    draws = random.Random(0)
    for split, count in PROBLEMS.items():
        # the model prefers the second number, so it solves some of these by sampling alone
        pairs = [sorted(draw_pair(draws), reverse=True) for _ in range(count)]
        rows = [json.dumps({"first": a, "second": b, "answer": max(a, b)}) for a, b in pairs]
        (run_folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    for name, keep in (("reasoning", "true"), ("answers", "false")):
        succeed(
            "run", "recipe.yaml", "--include-path", ".", "--run-dir", name,
            "--set", f"evidence.keep_reasoning={keep}", cwd=run_folder,
        )  # fmt: skip
    return run_folder


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    return {name: gapft_harness.open_run(folder / name) for name in ("reasoning", "answers")}


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder / "thinker")


def read_rows(run: Run) -> list[dict[str, Any]]:
    """Read all responses of the source and of the adapter with their golds."""
    golds = {
        row["problem_id"]: json.loads(row["document"])["answer"]
        for split in PROBLEMS
        for row in run.read("problems", split=split).to_pylist()
    }
    searched = [row for s in PROBLEMS for row in run.read("responses", split=s).to_pylist()]
    rows = searched + run.decisions.to_pylist()
    return [row | {"gold": golds[row["problem_id"]]} for row in rows]


def test_model_reasons_before_it_answers(runs: dict[str, Run]) -> None:
    texts = [row["text"] for row in read_rows(runs["reasoning"])]
    reasoning = [text for text in texts if text.startswith("<think>") and "</think>" in text]
    assert len(reasoning) > len(texts) / 2


def test_verdicts_read_only_the_answer(runs: dict[str, Run]) -> None:
    """The right number is in nearly every thought, also of responses that answer the other one."""
    rows = read_rows(runs["reasoning"])
    tempting = 0
    for row in rows:
        thought, end, answer = row["text"].rpartition("</think>")
        if row["text"].startswith("<think>") and not end:
            thought, answer = answer, ""  # cut while reasoning
        tempting += str(row["gold"]) in thought and str(row["gold"]) not in answer
        if row["status"] == "pass":
            assert str(row["gold"]) in answer
        if str(row["gold"]) not in answer:
            assert row["status"] == "fail"
    assert tempting


def test_training_without_reasoning_supervises_a_suffix(
    runs: dict[str, Run], tokenizer: Any
) -> None:
    whole, answers = (
        {row["problem_id"]: row for row in runs[name].selections.to_pylist()}
        for name in ("reasoning", "answers")
    )
    assert whole.keys() == answers.keys()
    assert whole
    removed = 0
    for problem, row in answers.items():
        ids, all_ids = row["response_ids"], whole[problem]["response_ids"]
        assert row["prompt_ids"] == whole[problem]["prompt_ids"]
        assert all_ids[len(all_ids) - len(ids) :] == ids
        removed += len(all_ids) - len(ids)
        assert "think" in tokenizer.decode(all_ids)
        assert tokenizer.decode(ids).strip().isdigit()
    budgets = [
        runs[name].directory.manifest()["budgets"]["gapft-seed13"]
        for name in ("reasoning", "answers")
    ]
    assert budgets[1]["reasoning"] == {
        "removed": len(answers), "none": 0, "inseparable": 0, "tokens": removed
    }  # fmt: skip
    assert budgets[0]["tokens"] - budgets[1]["tokens"] == budgets[0]["repetitions"] * removed
    assert "reasoning" not in budgets[0]


def test_runs_share_the_search(folder: Path) -> None:
    stored = [
        json.loads((folder / name / "manifest.json").read_text())["stored"]
        for name in ("reasoning", "answers")
    ]
    assert stored[0]["pool"] == stored[1]["pool"]
    assert stored[0]["audit"] == stored[1]["audit"]


def test_report_counts_removed_reasoning(folder: Path) -> None:
    results = json.loads((folder / "answers" / "report" / "results.json").read_text("utf-8"))
    [seed] = results["conditions"]["gapft"]["seeds"].values()
    assert seed["reasoning"]["removed"] == 2
    page = (folder / "answers" / "report" / "report.md").read_text("utf-8")
    assert "evidence.keep_reasoning" in page


@pytest.mark.parametrize("name", ["reasoning", "answers"])
def test_verify_finds_no_differences(folder: Path, name: str) -> None:
    succeed("verify", name, cwd=folder)
