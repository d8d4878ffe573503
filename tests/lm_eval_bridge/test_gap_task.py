"""GapTask: tasks in YAML, their few-shot examples, and judging."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.judge import Judge
from gapft_harness.lm_eval_bridge.discovery import load_task
from tests.kit.command import ROOT
from tests.lm_eval_bridge.sums import (
    build_record,
    edit_task,
    load_with_lm_eval,
    write_sums,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_sums(tmp_path)
    return tmp_path


def test_loads_task_from_yaml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # Data files are next to the YAML, not in the working directory.
    (folder / "audit.json").write_text(json.dumps([build_record(n) for n in (7, 8, 8)]))
    edit_task(folder, "audit.jsonl}}", 'audit.json}}\ndescription: "Add. "')
    task = load_task("sums", [folder])
    audit = task.read("audit")
    assert (task.name, task.version) == ("sums", "1")
    assert [problem.gold for problem in task.read("pool")] == ["1", "2", "3", "4", "5", "6"]
    assert (audit[0].prompt, audit[0].document) == ("Add. 7 + 1?", build_record(7))
    assert audit[0].id.startswith("n7-")
    assert audit[2].id == f"{audit[1].id}#2"
    assert load_task(str(folder / "sums.yaml")).read("audit") == audit


def test_loads_task_beside_clone(tmp_path: Path) -> None:
    """lm-eval prefers a class from a file next to the YAML, which in a clone is another copy."""
    (tmp_path / "gapft_harness").symlink_to(ROOT / "gapft_harness")
    (tmp_path / "pool.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "mine.yaml").write_text(
        "task: mine\nclass: !function gapft_harness.lm_eval_bridge.task.GapTask\n"
        "dataset_path: json\ndataset_kwargs: {data_files: {train: pool.jsonl, test: pool.jsonl}}\n"
        "training_split: train\ntest_split: test\n"
        'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\n'
        "generation_kwargs: {do_sample: false, max_gen_toks: 9}\n"
        "metadata: {version: 1, gapft: {verifier: boxed_math, keep: first}}\n"
    )
    assert load_task(str(tmp_path / "mine.yaml")).verifier == "boxed_math"


def test_gold_only_field_is_not_recorded(folder: Path) -> None:
    edit_task(folder, "id: name", "gold: answer, gold_only: [answer, kind, worked]")
    (problem, *_) = load_task("sums", [folder]).read("audit")
    assert problem.gold == "7"
    assert problem.document == {"name": "n6", "question": "6 + 1?"}


def process_responses(task: Any, texts: list[list[str]]) -> list[dict[str, Any]]:
    """Set the responses of every request; return the results of all documents."""
    for instance, responses in zip(task.instances, texts, strict=True):
        instance.resps = list(responses)
    task.apply_filters()
    (name,) = task.instances[0].filtered_resps
    return [task.process_results(i.doc, [i.filtered_resps[name]]) for i in task.instances]


def test_rejects_missing_responses(folder: Path) -> None:
    """The default filter keeps one of four."""
    (folder / "four.yaml").write_text("include: sums.yaml\ntask: four\nrepeats: 4\n")
    task = load_with_lm_eval(folder, "four")
    task.build_all_requests()
    with pytest.raises(UserError, match=r"problem n6-\w+: .*\b1\b.* 4"):
        process_responses(task, [["a"] * 4] * 3)


def test_counts_verifier_errors(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(responses: Any, golds: Any) -> Any:
        raise RuntimeError("worker gone")

    task = load_with_lm_eval(folder)
    task.build_all_requests()
    task.judge = Judge(SimpleNamespace(verify=fail))  # type: ignore[arg-type]
    results = process_responses(task, [["8"], ["9"], ["9"]])
    assert [r["verifier_errors"] for r in results] == [1, 1, 1]
    assert [r["pass@1"] for r in results] == [0.0, 0.0, 0.0]
    assert "worker gone" in caplog.text


STOCK = """
task: stock_sums
dataset_path: json
dataset_kwargs: {data_files: {train: FOLDER/pool.jsonl, test: FOLDER/audit.jsonl}}
training_split: train
test_split: test
fewshot_split: SHOTS
num_fewshot: 2
doc_to_text: "{{question}}"
doc_to_target: "{{answer}} pears"
generation_kwargs: {until: ["\\n"], max_gen_toks: 5, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.mark.parametrize("shots", ["train", "test"])
def test_stock_examples_exclude_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shots: str
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
    text = STOCK.replace("FOLDER", str(folder)).replace("SHOTS", shots)
    (folder / "stock_sums.yaml").write_text(text, encoding="utf-8")
    task = load_task("stock_sums", [folder])
    pool, audit = task.read("pool"), task.read("audit")
    for problem in pool:
        assert problem.prompt.endswith(problem.document["question"])
        assert problem.prompt.count(problem.document["question"]) == 1
        assert problem.prompt.count("?") == 3
    assert task.read("pool") == pool
    examples = {question for _, question in task.list_examples()}
    split = pool if shots == "train" else audit
    assert examples == {problem.document["question"] for problem in split}
