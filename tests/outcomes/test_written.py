"""Logs written by lighteval and Every Eval Ever themselves (``written/README.md``)."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.compare.comparison import compare
from gapft_harness.compare.options import CompareOptions
from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.logs import Evaluation, Log, open_log
from gapft_harness.outcomes.samples import list_metrics
from gapft_harness.outcomes.table import (
    choose_metric,
    choose_verdict_metric,
    count_passing,
    read_outcomes,
)
from tests.outcomes.made import WRITTEN, copy_details


def count_first(log: Log, metric: str | None = None) -> list[float]:
    """Return the scores of the first document's responses."""
    verdict = choose_verdict_metric(log, metric, None, None, "name another")
    outcomes = read_outcomes(Evaluation((log,)), {log.task: verdict})
    return count_passing(outcomes, [0], verdict, "name another")[0]


def test_lighteval_mean_gives_number_of_passes(tmp_path: Path) -> None:
    """The mean does not tell which passed; the likeliest option is the response."""
    samples = copy_details(tmp_path / "samples", "lighteval_samples")
    log = open_log(next(samples.iterdir()))
    first = [*log.read_samples()][:4]
    assert [(sample.text, sample.gold, sample.index) for sample in first] == [
        ("6", "6", 0), ("9", "6", 1), ("6", "6", 2), ("9", "6", 3),
    ]  # fmt: skip
    assert list_metrics(first[0], "none") == ["pass@k:k=1&n=4", "avg@n:n=4", "pass@1"]
    assert count_first(log) == [0.5] * 4
    options = copy_details(tmp_path / "options", "lighteval_options")
    sample = next(open_log(next(options.iterdir())).read_samples())
    assert (sample.response, sample.text, dict(sample.scores)) == (
        "option 1: 6", None, {"acc,none": 1},
    )  # fmt: skip


def test_epochs_of_records_share_a_score() -> None:
    """The converter gives every epoch the sample's mean score, so no epoch has its own verdict."""
    log = open_log(WRITTEN / "every_eval_ever_epochs.jsonl")
    samples = [sample for sample in log.read_samples() if "score,match:accuracy" in sample.scores]
    assert (log.task, log.kind) == ("sums", "every-eval-ever")
    assert choose_metric(log, None, None).filter == "includes:accuracy"
    first = [(sample.text, sample.index) for sample in samples if sample.number == "q1"]
    assert first == [("ANSWER: 2", 0), ("ANSWER: 99", 1)]
    assert (samples[0].scores["score,match:accuracy"], samples[0].prompt) == (0.5, "1+1?")
    assert samples[0].gold == "2"
    with pytest.raises(UserError, match="score"):
        count_first(log)
    lm_eval_log = open_log(WRITTEN / "every_eval_ever_of_lm_eval.jsonl")
    assert lm_eval_log.task == "sums_text"
    scores = [next(iter(sample.scores.values())) for sample in lm_eval_log.read_samples()]
    assert scores == [0, 1, 1, 0, 0, 1]


def test_compares_every_eval_ever_records() -> None:
    before, epochs = (
        str(WRITTEN / f"every_eval_ever_{side}.jsonl") for side in ("before", "epochs")
    )
    comparison = compare(before, [epochs], CompareOptions(filter="match:accuracy"))
    (paired,) = comparison.models.values()
    assert (paired.before, paired.after) == (pytest.approx(2 / 3), 0.5)


def test_rejects_records_with_conflicting_scores(tmp_path: Path) -> None:
    lines = (WRITTEN / "every_eval_ever_epochs.jsonl").read_text().splitlines()
    changed = json.loads(lines[-1])
    changed["evaluation"]["score"] = 0.25
    (tmp_path / "log.jsonl").write_text("\n".join([*lines[:-1], json.dumps(changed)]))
    with pytest.raises(UserError, match=r"line 12: .*q3"):
        list(open_log(tmp_path / "log.jsonl").read_samples())


def test_json_lines_score_samples_apart_from_greedy(tmp_path: Path) -> None:
    lines = [
        {"id": name, "text": f"{name}{index}", "passed": index == 1, "index": index}
        for index in ("greedy", 1, 0)
        for name in "ab"
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    log = open_log(tmp_path / "log.jsonl")
    for filter_name, rate in (("none", 0), ("samples", 0.5)):
        metric = choose_metric(log, None, filter_name)
        outcomes = read_outcomes(Evaluation((log,)), {"": metric})
        assert outcomes.values.tolist() == [rate, rate]
        assert [outcomes.count_responses(n) for n in (0, 1)] == [1 + (rate > 0)] * 2


def test_rejects_details_without_rows(tmp_path: Path) -> None:
    empty = pq.read_table(WRITTEN / "lighteval_before.parquet")[:0]
    pq.write_table(empty, tmp_path / "log.parquet")
    with pytest.raises(UserError, match=r"log\.parquet"):
        compare(str(tmp_path / "log.parquet"), [str(tmp_path / "log.parquet")], CompareOptions())
