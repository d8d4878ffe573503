"""task_metric: tasks of lm-eval as verifiers; tests/gap compares its verdicts with lm-eval's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness import load_verifier
from gapft_harness.lm_eval_bridge.stock import StockTask
from tests.plugins.verifier_rows import write_metric_task

DOCUMENT = {"question": "?", "answer": "5"}


def test_metric_that_is_not_0_or_1_is_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = {"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}
    params = write_metric_task(tmp_path / "bleu", metric_list=[graded])
    (verdict,) = load_verifier("task_metric", **params).verify(["5"], [DOCUMENT])
    assert (verdict.status, "bleu" in verdict.reason) == ("error", True)
    params = write_metric_task(tmp_path / "match")
    stock = StockTask(params["task"], None, params["include_path"], 0.5)
    result = {"exact_match": float("nan")}
    monkeypatch.setattr(stock._task, "process_results", lambda document, results: result)
    (verdict,) = stock.judge([DOCUMENT], ["5"])
    assert (verdict.status, "nan" in verdict.reason) == ("error", True)


def test_unreadable_record_is_error_for_itself_only(tmp_path: Path) -> None:
    verifier = load_verifier("task_metric", **write_metric_task(tmp_path / "sums"))
    verdicts = verifier.verify(["5"] * 3, [{"question": "?"}, "5", DOCUMENT])
    assert [v.status for v in verdicts] == ["error", "error", "pass"]


CODE = "def judge(doc, results):\n    return {'exact_match': int(results[0] == doc['answer'])}\n"
YAML = (
    "task: own_metric\ndataset_path: json\ntest_split: test\n"
    "dataset_kwargs: {data_files: {test: FOLDER/data.jsonl}}\n"
    "doc_to_text: '{{question}}'\ndoc_to_target: '{{answer}}'\noutput_type: generate_until\n"
    "process_results: !function own_code.judge\n"
    "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
)


def test_description_depends_on_task_code_not_path(tmp_path: Path) -> None:
    """Stored verdicts are not reused after a metric is edited."""
    descriptions = []
    for name, text in (("one", CODE), ("moved", CODE), ("edited", CODE.replace("==", "!="))):
        folder = tmp_path / name
        write_metric_task(folder)
        (folder / "own_metric.yaml").write_text(YAML.replace("FOLDER", str(folder)))
        (folder / "own_code.py").write_text(text)
        params = {"task": "own_metric", "include_path": str(folder)}
        descriptions.append(load_verifier("task_metric", **params).describe())
    assert descriptions[0] == descriptions[1] != descriptions[2]
