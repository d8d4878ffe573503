"""``gapft run --task`` on one of lm-eval's tasks: its metric under a filter is the verifier.

gsm8k's YAML with its filters and metric; data and prompt suit the demo policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from gapft_harness.run_directory.tables import read_judged, read_problems
from tests.canned_model import evaluate
from tests.gap.stock import POLICY, STOCK, write_task
from tests.kit.command import succeed
from tests.kit.report_tables import read_results

DEMO = POLICY.parents[1] / "tasks" / "demo"
SETTINGS = (
    "verifier.params.metric=exact_match,flexible-extract",
    "search.k=4", "search.temperature=1.0", "search.top_p=1.0", "search.max_gen_toks=32",
    "training.learning_rate=1e-3", "training.dtype=float32",
)  # fmt: skip


def read_demo_records(name: str, count: int) -> Iterator[dict[str, str]]:
    """Read the demo's questions, with answers in the form of gsm8k."""
    with (DEMO / f"{name}.jsonl").open() as file:
        for row in map(json.loads, islice(file, count)):
            answer = f"{row['solution']}\n#### {row['answer']}"
            yield {"question": row["question"], "answer": answer}


@pytest.mark.thorough
def test_chosen_filter_judges_training_and_audit(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    data = {"train": read_demo_records("pool", 60), "test": read_demo_records("audit", 40)}
    bare = {"doc_to_text": "{{question}}", "num_fewshot": 0}
    write_task(tasks, "sums", STOCK["gsm8k"].file, data, **bare)
    succeed(
        "run", "--task", "sums", "--include-path", "tasks", "--condition", "gapft", "--seed", "13",
        "--model-args", "pretrained=bundled:demo,dtype=float32,device=cpu,batch_size=64",
        *(part for setting in SETTINGS for part in ("--set", setting)), cwd=tmp_path,
    )  # fmt: skip
    judge = (
        "a response passes if exact_match is 1, filter flexible-extract "
        "(the task's others: strict-match)"
    )
    run = tmp_path / "runs" / "sums"
    assert judge in (run / "report" / "index.md").read_text()
    results = read_results(run)
    judges = {row["setting"] for row in results["facts"] if row["value"] == judge}
    assert judges == {f"judged_by.{name}.judge" for name in ("pool", "audit", "gapft-seed13")}
    assert results["seeds"][0]["slots"] >= 5

    ours = {
        "": read_decisions(run, "audit/responses.parquet"),
        f",peft={run / 'adapters' / 'gapft-seed13'}": read_decisions(
            run, "decisions/gapft-seed13.parquet"
        ),
    }
    for adapter, facts in ours.items():
        expected = evaluate_with_lm_eval(tasks, adapter)
        assert facts == expected["flexible-extract"]
        assert not any(expected["strict-match"].values()), "the other filter reads no answer at all"
    source, trained = ours.values()
    assert 0 < sum(source.values()) < len(source) == 40
    assert source != trained, "the adapter changes no answer: nothing was compared"
    succeed("verify", run, cwd=tmp_path)


def read_decisions(run: Path, table: str) -> dict[str, bool]:
    """Read whether each question's greedy response passes."""
    questions = {
        problem.id: problem.document["question"]
        for problem, _ in read_problems(run / "audit" / "problems.parquet")
    }
    return {questions[name]: judged[0].verdict.passed for name, judged in read_judged(run / table)}


def evaluate_with_lm_eval(tasks: Path, adapter: str) -> dict[str, dict[str, bool]]:
    """Evaluate the test split with lm-eval: by filter, whether each question is right."""
    out = evaluate(
        "hf", ["sums"], tasks, model_args=f"pretrained={POLICY},dtype=float32{adapter}",
        device="cpu", batch_size=64, gen_kwargs="max_gen_toks=32", log_samples=True,
    )  # fmt: skip
    verdicts: dict[str, dict[str, bool]] = {}
    for row in out["samples"]["sums"]:
        verdicts.setdefault(row["filter"], {})[row["doc"]["question"]] = row["exact_match"] == 1
    return verdicts
