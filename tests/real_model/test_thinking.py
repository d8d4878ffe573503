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
from tests.kit.command import succeed
from tests.kit.local_tasks import build_task

MODEL = os.environ.get("GAPFT_REAL_MODEL", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="GAPFT_REAL_MODEL: make test-real-model sets it")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION = "Which number is larger, {{first}} or {{second}}?"
TASK = build_task("larger", "verifier: math, keep: shortest", text=QUESTION, tokens=34)
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
    """A folder with the model, the task and a run."""
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
    succeed("run", "recipe.yaml", "--include-path", ".", "--run-dir", "run", cwd=run_folder)
    return run_folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return gapft_harness.open_run(folder / "run")


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


def test_model_reasons_before_it_answers(run: Run) -> None:
    texts = [row["text"] for row in read_rows(run)]
    reasoning = [text for text in texts if text.startswith("<think>") and "</think>" in text]
    assert len(reasoning) > len(texts) / 2


def test_verdicts_read_only_the_answer(run: Run) -> None:
    """The right number is in nearly every thought, also of responses that answer the other one."""
    rows = read_rows(run)
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


def test_trains_on_responses_as_generated(run: Run, tokenizer: Any) -> None:
    texts = [tokenizer.decode(row["response_ids"]) for row in run.selections.to_pylist()]
    assert any("<think>" in text for text in texts)


def test_verify_finds_no_differences(folder: Path) -> None:
    succeed("verify", "run", cwd=folder)
