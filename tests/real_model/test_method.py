"""The method and the comparison, by the documented commands, with a pretrained chat model.

``make test-real-model`` makes the model's folder and names it in ``GAPFT_REAL_MODEL``.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import gapft_harness
from gapft_harness.core.records import GREEDY
from gapft_harness.interactive.runs import Run
from tests.kit.command import lm_eval, succeed
from tests.kit.local_tasks import build_task
from tests.kit.report_tables import find_row, read_results

MODEL = os.environ.get("GAPFT_REAL_MODEL", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="GAPFT_REAL_MODEL: make test-real-model sets it")

QUESTION = "Which number is larger, {{first}} or {{second}}?"
TASK = f"""\
{build_task("larger", "verifier: math, keep: shortest", text=QUESTION)}
num_fewshot: 2
fewshot_config:
  sampler: first_n
  samples:
    - {{first: 84, second: 55, answer: 84}}
    - {{first: 21, second: 154, answer: 154}}
"""
RECIPE = f"""\
name: larger
data: {{task: larger}}
model:
  args: {{pretrained: {json.dumps(MODEL)}, dtype: float32, device: cpu, batch_size: 64}}
search: {{k: 8, temperature: 1.0, top_p: 0.95}}
conditions: [gapft, uniform]
seeds: [13]
budget: {{n: 8}}
training:
  rank: 8
  target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
  repetitions: 4
  dtype: float32
executor: {{name: local, workers: 2, threads: 1}}
"""
PROBLEMS = {"pool": 64, "audit": 32}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the task, its problems, and a run of the recipe."""
    run_folder = tmp_path_factory.mktemp("larger")
    (run_folder / "larger.yaml").write_text(TASK, "utf-8")
    (run_folder / "recipe.yaml").write_text(RECIPE, "utf-8")
    draws = random.Random(0)
    pairs = draws.sample(
        [(7 * a, 11 * b) for a in range(1, 40) for b in range(1, 25) if 7 * a != 11 * b],
        sum(PROBLEMS.values()),
    )
    for split, count in PROBLEMS.items():
        rows = [
            json.dumps({"first": first, "second": second, "answer": max(first, second)})
            for first, second in (pairs.pop() for _ in range(count))
        ]
        (run_folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    succeed("run", "recipe.yaml", "--include-path", ".", "--run-dir", "run", cwd=run_folder)
    return run_folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    """The run, opened."""
    return gapft_harness.open_run(folder / "run")


def document_key(document: dict[str, Any]) -> str:
    """Return a key that identifies a document."""
    return f"{document['first']} {document['second']}"


def evaluate_with_lm_eval(folder: Path, name: str, adapter: str = "") -> dict[str, str]:
    """Evaluate the task with lm_eval's own backend; return its logged texts by document."""
    peft = f",peft={folder / 'run' / 'adapters' / adapter}" if adapter else ""
    lm_eval(
        "--include_path", ".", "--model", "hf", "--tasks", "larger", "--device", "cpu",
        "--model_args", f"pretrained={MODEL},dtype=float32{peft}", "--apply_chat_template",
        "--batch_size", "16", "--log_samples", "--output_path", name, cwd=folder,
    )  # fmt: skip
    [log] = (folder / name).glob("**/samples_larger_*.jsonl")
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert all(len(row["resps"]) == len(row["resps"][0]) == 1 for row in rows)
    return {document_key(row["doc"]): row["resps"][0][0] for row in rows}


@pytest.fixture(scope="module")
def before(folder: Path) -> dict[str, str]:
    """The stock backend's texts for the model."""
    return evaluate_with_lm_eval(folder, "before")


@pytest.fixture(scope="module")
def after(folder: Path) -> dict[str, str]:
    """The stock backend's texts for the adapter."""
    return evaluate_with_lm_eval(folder, "after", "gapft-seed13")


def key_by_document(run: Run, texts: dict[str, str]) -> dict[str, str]:
    """Return texts of the audit's problems by document."""
    problems = run.read("problems", split="audit").to_pylist()
    return {document_key(json.loads(row["document"])): texts[row["problem_id"]] for row in problems}


def test_training_changes_every_adapter(folder: Path) -> None:
    for arm in ("gapft-seed13", "uniform-seed13"):
        weights = load_file(folder / "run" / "adapters" / arm / "adapter_model.safetensors")
        second = [tensor for name, tensor in weights.items() if "lora_B" in name]  # initially zero
        assert second
        assert all(tensor.any() for tensor in second)


def test_greedy_texts_match_the_stock_backend(run: Run, before: dict[str, str]) -> None:
    greedy = {
        row["problem_id"]: row["text"]
        for row in run.read("responses", split="audit").to_pylist()
        if row["index"] == GREEDY
    }
    assert len(before) == PROBLEMS["audit"]
    assert key_by_document(run, greedy) == before


def test_saved_adapter_is_the_audited_one(run: Run, after: dict[str, str]) -> None:
    audited = {
        row["problem_id"]: row["text"]
        for row in run.decisions.to_pylist()
        if row["condition"] == "gapft" and not row["of"]
    }
    assert len(after) == PROBLEMS["audit"]
    assert key_by_document(run, audited) == after


@pytest.mark.usefixtures("before", "after")
def test_compare_agrees_with_the_report(folder: Path) -> None:
    succeed("compare", "before", "after", "--out", "compared", cwd=folder)
    compared = json.loads((folder / "compared" / "results.json").read_text("utf-8"))
    conditions = read_results(folder / "run")["conditions"]
    [pair] = compared["models"]
    assert pair["before"] == find_row(conditions, condition="source")["pass_at_1"]
    assert pair["after"] == find_row(conditions, condition="gapft")["pass_at_1"]


def test_verify_finds_no_differences(folder: Path) -> None:
    succeed("verify", "run", cwd=folder)
