"""GapTask: tasks in YAML, metrics, and judging."""

import json
from types import SimpleNamespace

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.judge import Judge
from gapft_harness.lm_eval_bridge.discovery import load_task

YAML = """
task: mine
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: data/pool.jsonl, test: data/audit.json}}
training_split: train
test_split: test
description: "Add. "
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 9, until: ["\\n\\n"]}
metadata:
  version: 3
  gapft: {verifier: boxed_math, keep: first, id: "n{{number}}"}
"""
PASSK = """
include: mine.yaml
task: mine_passk
repeats: 4
filter_list: [{name: samples, filter: [{function: take_first_k, k: 4}]}]
"""


def build_record(number: int) -> dict:
    return {"number": number, "question": f"{number} + 1?", "answer": str(number + 1)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    pool = [json.dumps(build_record(n)) for n in range(5)]
    (tmp_path / "data" / "pool.jsonl").write_text("\n".join(pool), encoding="utf-8")
    audit = json.dumps([build_record(n) for n in (7, 8, 8)])
    (tmp_path / "data" / "audit.json").write_text(audit, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(YAML, encoding="utf-8")
    (tmp_path / "mine_passk.yaml").write_text(PASSK, encoding="utf-8")
    return tmp_path


def edit_task(folder, old, new):
    assert old in YAML
    (folder / "mine.yaml").write_text(YAML.replace(old, new), encoding="utf-8")


def test_loads_task_from_yaml(folder, monkeypatch):
    monkeypatch.chdir("/")  # Data files are next to the YAML, not in the working directory.
    task = load_task("mine", [folder])
    pool, audit = task.read("pool"), task.read("audit")
    assert (task.name, task.version, task.keep) == ("mine", "3", "first")
    assert [p.gold for p in pool] == ["1", "2", "3", "4", "5"]
    assert audit[0].prompt == "Add. 7 + 1?\nAnswer:"
    assert audit[0].id.startswith("n7-")
    assert audit[2].id == f"{audit[1].id}#2"
    assert audit[0].document == build_record(7)
    decoding = task.build_decoding()
    assert (decoding.do_sample, decoding.max_gen_toks, decoding.until) == (False, 9, ("\n\n",))
    assert load_task(str(folder / "mine.yaml")).read("audit") == audit


def test_gold_only_field_is_not_recorded(folder):
    edit_task(folder, "keep: first", "keep: first, gold: answer, gold_only: [answer]")
    (problem, *_) = load_task("mine", [folder]).read("audit")
    assert problem.gold == "8"
    assert problem.document == {"number": 7, "question": "7 + 1?"}


def open_task(folder, name):
    """Load a task with lm-eval and build its requests."""
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_defaults=False, include_path=[str(folder)])
    task = manager.load([name])["tasks"][name]
    task.build_all_requests()
    return task


def process_responses(task, texts):
    """Set the responses of every request; return the results of all documents."""
    for instance, responses in zip(task.instances, texts, strict=True):
        instance.resps = list(responses)
    task.apply_filters()
    (name,) = task.instances[0].filtered_resps
    return [task.process_results(i.doc, [i.filtered_resps[name]]) for i in task.instances]


def test_rejects_missing_responses(folder):
    text = PASSK.replace("filter_list", "# filter_list")
    (folder / "mine_passk.yaml").write_text(text, encoding="utf-8")
    task = open_task(folder, "mine_passk")
    with pytest.raises(UserError, match=r"problem n7-\w+: .*\b1\b.* 4"):
        process_responses(task, [["a"] * 4] * 3)


def test_counts_verifier_errors(folder, caplog):
    def fail(responses, golds):
        raise RuntimeError("worker gone")

    task = open_task(folder, "mine")
    task.judge = Judge(SimpleNamespace(verify=fail))
    results = process_responses(task, [["8"], ["9"], ["9"]])
    assert [r["verifier_errors"] for r in results] == [1, 1, 1]
    assert [r["pass@1"] for r in results] == [0.0, 0.0, 0.0]
    assert "worker gone" in caplog.text


STOCK = """
task: stock_mine
dataset_path: json
dataset_kwargs: {data_files: {train: POOL, test: AUDIT}}
training_split: train
test_split: test
fewshot_split: train
num_fewshot: 2
doc_to_text: "{{question}}"
doc_to_target: "{{answer}} pears"
generation_kwargs: {until: ["\\n"], max_gen_toks: 5, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def stock(folder, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
    data = folder / "data"
    text = STOCK.replace("POOL", str(data / "pool.jsonl"))
    text = text.replace("AUDIT", str(data / "audit.json"))
    (folder / "stock_mine.yaml").write_text(text, encoding="utf-8")
    return load_task("stock_mine", [folder])


def test_stock_examples_exclude_problem(stock):
    pool = stock.read("pool")
    for problem in pool:
        assert problem.prompt.endswith(problem.document["question"])
        assert problem.prompt.count(problem.document["question"]) == 1
        assert problem.prompt.count("?") == 3
    assert stock.read("pool") == pool


def test_stock_task_lists_examples(stock, folder):
    pool, audit = (
        {problem.document["question"] for problem in split}
        for split in (stock.read("pool"), stock.read("audit"))
    )
    text = (folder / "stock_mine.yaml").read_text(encoding="utf-8")
    for split, expected in (("train", pool), ("test", audit)):
        written = text.replace("fewshot_split: train", f"fewshot_split: {split}")
        (folder / "stock_mine.yaml").write_text(written, encoding="utf-8")
        task = load_task("stock_mine", [folder])
        assert {question for _, question in task.list_examples()} == expected
