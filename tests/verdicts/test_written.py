"""Logs written by lighteval and Every Eval Ever themselves (``written/README.md``)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import UserError
from gapft_harness.verdicts.log_files import find_single_run, open_log
from gapft_harness.verdicts.sample_logs import Criterion, read_rows
from tests.verdicts.made import WRITTEN, copy_details


def test_compares_lighteval_folders(tmp_path: Path) -> None:
    before, after = (
        copy_details(tmp_path / side, f"lighteval_{side}") for side in ("before", "after")
    )
    comparison = compare(str(before), [str(after)], CompareChoice())
    assert comparison.metrics.keys() == {"toy|0"}
    assert str(comparison.metric) == "em"
    (paired,) = comparison.findings.models.values()
    assert (paired.before, paired.after, paired.gained, paired.lost) == (0.5, 0.5, 2, 2)


def test_lighteval_mean_gives_number_of_passes(tmp_path: Path) -> None:
    """The mean does not tell which passed; the likeliest option is the response."""
    samples = copy_details(tmp_path / "samples", "lighteval_samples")
    row = next(iter(read_rows(open_log(next(samples.iterdir())))))
    assert (row.texts, row.count, row.gold) == (["6", "9", "6", "9"], 4, "6")
    assert row.metrics == ["pass@k:k=1&n=4", "avg@n:n=4", "pass@1"]
    criterion = Criterion.of(row, None, "name another")
    assert criterion.count_passing(row) == (2, 4)
    with pytest.raises(UserError, match="pass@1"):
        criterion.find_passed(row)
    options = copy_details(tmp_path / "options", "lighteval_options")
    row = next(iter(read_rows(open_log(next(options.iterdir())))))
    assert (row.response, row.metrics, row.require_number("acc")) == ("option 1: 6", ["acc"], 1)


def test_lighteval_samples_give_states(tmp_path: Path) -> None:
    before = copy_details(tmp_path / "before", "lighteval_before")
    samples = copy_details(tmp_path / "samples", "lighteval_samples")
    choice = CompareChoice(source_samples=[str(samples)])
    comparison = compare(str(before), [str(before)], choice)
    assert comparison.samples is not None
    assert comparison.samples.k == 4
    assert comparison.samples.passing.tolist() == [2] * 4


def test_groups_records_by_result_and_epochs() -> None:
    """The converter gives every epoch the sample's mean score, so no epoch has its own verdict."""
    log = open_log(WRITTEN / "every_eval_ever_epochs.jsonl")
    rows = list(read_rows(log))
    assert (log.task, log.kind) == ("sums", "every-eval-ever")
    assert [(row.doc_id, row.filter) for row in rows[:2]] == [
        ("q1", "includes:accuracy"), ("q1", "match:accuracy"),
    ]  # fmt: skip
    assert len(rows) == 6
    assert rows[1].texts == ["ANSWER: 2", "ANSWER: 99"]
    assert (rows[1].require_number("score"), rows[1].prompt, rows[1].gold) == (0.5, "1+1?", "2")
    with pytest.raises(UserError, match="score"):
        Criterion.of(rows[1], None, "").count_passing(rows[1])
    lm_eval_log = open_log(WRITTEN / "every_eval_ever_of_lm_eval.jsonl")
    assert lm_eval_log.task == "sums_text"
    assert [row.require_number("score") for row in read_rows(lm_eval_log)] == [0, 1, 1, 0, 0, 1]


def test_compares_every_eval_ever_records() -> None:
    before, epochs = (
        str(WRITTEN / f"every_eval_ever_{side}.jsonl") for side in ("before", "epochs")
    )
    comparison = compare(before, [epochs], CompareChoice(filter="match:accuracy"))
    (paired,) = comparison.findings.models.values()
    assert (paired.before, paired.after) == (pytest.approx(2 / 3), 0.5)


def test_compares_epochs_without_verdicts() -> None:
    epochs = str(WRITTEN / "every_eval_ever_epochs.jsonl")
    comparison = compare(epochs, [epochs], CompareChoice())
    (paired,) = comparison.findings.models.values()
    assert paired.before == 0.5


def test_rejects_records_with_conflicting_scores(tmp_path: Path) -> None:
    lines = (WRITTEN / "every_eval_ever_epochs.jsonl").read_text().splitlines()
    changed = json.loads(lines[-1])
    changed["evaluation"]["score"] = 0.25
    (tmp_path / "log.jsonl").write_text("\n".join([*lines[:-1], json.dumps(changed)]))
    with pytest.raises(UserError, match=r"line 6: .*q3"):
        list(read_rows(open_log(tmp_path / "log.jsonl")))


def test_groups_json_lines_samples_into_rows(tmp_path: Path) -> None:
    lines = [
        {"id": name, "text": f"{name}{index}", "passed": index == 1, "index": index}
        for index in ("greedy", 1, 0)
        for name in "ab"
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [
        (row.filter, row.texts, row.require_number("pass@1"))
        for row in read_rows(open_log(tmp_path / "log.jsonl"))
    ]
    assert rows == [
        ("none", ["agreedy"], 0), ("none", ["bgreedy"], 0),
        ("samples", ["a0", "a1"], 0.5), ("samples", ["b0", "b1"], 0.5),
    ]  # fmt: skip


def test_rejects_details_without_rows(tmp_path: Path) -> None:
    empty = pq.read_table(WRITTEN / "lighteval_before.parquet")[:0]
    pq.write_table(empty, tmp_path / "log.parquet")
    with pytest.raises(UserError, match=r"log\.parquet"):
        compare(str(tmp_path / "log.parquet"), [str(tmp_path / "log.parquet")], CompareChoice())


def test_latest_option_chooses_newest_details(tmp_path: Path) -> None:
    folder = copy_details(tmp_path / "logs", "lighteval_before")
    newer = folder / "details_toy|0_2026-01-02T00-00-00.000001.parquet"
    shutil.copy(WRITTEN / "lighteval_after.parquet", newer)
    with pytest.raises(UserError, match=r"toy\|0"):
        find_single_run(str(folder), [], "BEFORE")
    assert [log.path for log in find_single_run(str(folder), [], "BEFORE", latest=True).logs] == [
        newer
    ]
