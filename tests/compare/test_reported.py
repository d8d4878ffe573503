"""The mean of a log's rows must equal the number that the log reports."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.gate import check_policy, find_verdict
from gapft_harness.compare.options import Rule
from gapft_harness.compare.policy import build_margin_rule
from gapft_harness.core.errors import UserError
from tests.compare.logs import (
    compare_logs,
    join_notes,
    read_means,
    read_results,
    row,
    write_log,
)

#: Placeholders of lm_eval's tasks for documents that a metric does not apply to.
MARKS = [-1.0, -100.0, 999.0]


def build_measured_rows(
    length: int, values: list[float | None], mark: float
) -> list[dict[str, Any]]:
    """Build rows with a metric for each length, as in RULER: a placeholder for other lengths."""
    first, second = str(length), str(2 * length)
    half = len(values) // 2
    return [
        row(number, 0, metrics=[first], **{first: value})
        if number < half
        else row(number, 0, metrics=[first, second], **{first: mark, second: value})
        for number, value in enumerate(values)
    ]


def refuse(before: Path, after: Path, **choice: Any) -> None:
    """Compare logs, which must be refused."""
    with pytest.raises(UserError):
        compare_logs(before, after, **choice)


def find_gate_verdict(comparison: Comparison, margin: float) -> str | None:
    return find_verdict(check_policy(comparison, [build_margin_rule(margin)]))


@pytest.mark.parametrize("mark", MARKS)
def test_skips_placeholder_values(tmp_path: Path, mark: float) -> None:
    sides = []
    for name, values in (("b", [1, 1, 1, 1, 0, 0, 1, 0]), ("a", [0, 1, 1, 1, 1, 1, 1, 0])):
        reported = {"64,none": fmean(values[:4]), "128,none": fmean(values[4:])}
        rows = build_measured_rows(64, [*values], mark)
        sides.append(write_log(tmp_path / name, rows=rows, results=reported))
    comparison = compare_logs(sides[0], f"after={sides[1]}")
    assert read_means(comparison) == (1.0, 0.75)
    assert len(comparison.joined.items) == 4
    for side in ("before", "after"):
        assert f"{side}: 4 of 8 documents" in join_notes(comparison)
    assert read_means(compare_logs(*sides, metric="128")) == (0.25, 0.75)


def test_rejects_ambiguous_negative_placeholder(tmp_path: Path) -> None:
    log = write_log(tmp_path / "b", rows=build_measured_rows(64, [1, 1, 0, 1], -1.0))
    refuse(log, log)
    whole = write_log(tmp_path / "c", rows=build_measured_rows(64, [-1, -1, -1, -1], -1.0))
    refuse(whole, whole)
    assert read_means(compare_logs(log, log, metric="128")) == (0.5, 0.5)


def write_perplexity_log(folder: Path, values: list[float], with_results: bool = True) -> Path:
    rows = [row(n, 0, metrics=["perplexity"], perplexity=v) for n, v in enumerate(values)]
    log = write_log(
        folder,
        rows=rows,
        results={"perplexity,none": math.exp(-fmean(values))},
        facts={"higher_is_better": {"toy": {"perplexity": False}}},
    )
    if not with_results:
        next(folder.glob("results_*.json")).unlink()
    return log


@pytest.mark.parametrize("with_results", [True, False])
def test_compares_perplexity_as_logarithm(tmp_path: Path, with_results: bool) -> None:
    """A likelier text is never reported as worse."""
    values = [-3.0 - 0.1 * (n % 5) for n in range(40)]
    worse = write_perplexity_log(tmp_path / "b", values, with_results)
    better = write_perplexity_log(tmp_path / "a", [v + 1 for v in values], with_results)
    comparison = compare_logs(worse, better)
    assert read_means(comparison) == (pytest.approx(3.2), pytest.approx(2.2))
    assert comparison.higher_is_better is False
    assert find_gate_verdict(comparison, 0.1) == "PASS"
    assert read_results(comparison)["tasks"][0]["metric"] == "log perplexity"
    assert find_gate_verdict(compare_logs(better, worse), 0.1) == "BLOCK"
    refuse(worse, better, higher_is_better=True)


def write_reporting_log(folder: Path, values: list[float], reported: float, **facts: Any) -> Path:
    rows = [
        row(n, v, metrics=["exact_match", "acc"], acc=float(v > 0)) for n, v in enumerate(values)
    ]
    share = fmean(float(v > 0) for v in values)
    return write_log(
        folder, rows=rows, results={"exact_match,none": reported, "acc,none": share}, **facts
    )


@pytest.mark.parametrize("reported", [0.325, 32.5, 0.325 * (1 + 1e-12)])
def test_accepts_reported_percent(tmp_path: Path, reported: float) -> None:
    log = write_reporting_log(tmp_path / "b", [0.0, 0.1, 0.2, 1.0], reported)
    assert read_means(compare_logs(log, log)) == (pytest.approx(0.325),) * 2
    third = write_reporting_log(tmp_path / "c", [0, 0, 1], 0.3333)
    assert read_means(compare_logs(third, third)) == (pytest.approx(1 / 3),) * 2


@pytest.mark.parametrize("nothing", [None, math.nan, "null", "NaN", " n/a", ""])
def test_missing_value_keeps_first_metric(tmp_path: Path, nothing: Any) -> None:
    def build_rows(values: list[Any]) -> list[dict[str, Any]]:
        return [row(n, v, metrics=["exact_match", "f1"], f1=0.5) for n, v in enumerate(values)]

    before = write_log(tmp_path / "b", rows=build_rows([nothing, 0, 1, 1, 0]))
    after = write_log(tmp_path / "a", rows=build_rows([0, 1, 1, nothing, 0]))
    refuse(before, after)
    comparison = compare_logs(before, f"after={after}", common=True)
    assert read_means(comparison) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    for side in ("before", "after"):
        assert f"{side}: 1 of 5 documents" in join_notes(comparison)
    empty = write_log(tmp_path / "c", rows=build_rows([nothing] * 5))
    refuse(empty, after, common=True)
    assert read_means(compare_logs(before, after, metric="f1")) == (0.5, 0.5)


def test_reads_direction_from_task_config(tmp_path: Path) -> None:
    entry = {"metric": "exact_match", "higher_is_better": False}
    facts = {"higher_is_better": {}, "configs": {"toy": {"metric_list": [entry]}}}
    values = [0.5, 0.25, 0.75, 0.5] * 10
    worse = write_log(tmp_path / "b", values, facts=facts)
    better = write_log(tmp_path / "a", [v - 0.2 for v in values], facts=facts)
    comparison = compare_logs(worse, better)
    assert comparison.higher_is_better is False
    assert find_gate_verdict(comparison, 0.05) == "PASS"


def build_old_row(fields: dict[str, Any]) -> dict[str, Any]:
    """Build a row as lm_eval wrote it before November 2024."""
    return {
        **{key: value for key, value in fields.items() if key not in ("filter", "metrics")},
        "arguments": [["What is it?", {"until": ["\n"]}]],
    }


def test_reads_logs_without_filter_and_metrics(tmp_path: Path) -> None:
    rows = [build_old_row(row(n, v)) for n, v in enumerate([0, 1, 0, 1])]
    for line in rows:
        del line["doc_id"]
    log = write_log(tmp_path / "b", rows=rows)
    other = write_log(tmp_path / "a", rows=[build_old_row(row(n, 1)) for n in range(4)])
    assert read_means(compare_logs(log, other, metric="exact_match")) == (0.5, 1.0)
    comparison = compare_logs(log, other)
    assert read_means(comparison) == (0.5, 1.0)
    assert comparison.metric is not None
    assert comparison.metric.metric == "exact_match"
    bare = write_log(
        tmp_path / "c", rows=[{k: v for k, v in r.items() if k != "exact_match"} for r in rows]
    )
    refuse(bare, other)


# Judging again


LETTERS = Rule("option_letter", {"rule": "whole_response"})


def build_letter_row(number: int, value: Any, text: str, **changes: Any) -> dict[str, Any]:
    return row(number, value, **{"resps": [[text]], "target": "B", **changes})


def build_ungraded_row(number: int, text: str) -> dict[str, Any]:
    """Build a row of ``lm_eval --predict_only``."""
    fields = build_letter_row(number, 0, text, metrics=["bypass"], bypass=999)
    del fields["exact_match"]
    return fields


def test_ungraded_logs_need_a_verifier(tmp_path: Path) -> None:
    facts = {"higher_is_better": {"toy": {"bypass": False}}}
    log, other = (
        write_log(
            tmp_path / name,
            rows=[build_ungraded_row(n, text) for n, text in enumerate(texts)],
            results={"bypass,none": 999},
            facts=facts,
        )
        for name, texts in (("b", "BACB"), ("a", "BBCB"))
    )
    refuse(log, log)
    refuse(log, log, metric="bypass")
    assert read_means(compare_logs(log, other, verifier=LETTERS)) == (0.5, 0.75)
    for choice in ({}, {"metric": "bypass"}):
        with pytest.raises(UserError):
            compare_logs(log, verifier=LETTERS, **choice)


def test_reads_unnested_responses(tmp_path: Path) -> None:
    """lmms-eval logs responses this way."""
    rows = [
        build_letter_row(n, v, "", resps=[text], filtered_resps=text)
        for n, (v, text) in enumerate([(1, "B"), (0, "C"), (0, "B")])
    ]
    log = write_log(tmp_path / "b", rows=rows, results={"exact_match,none": 1 / 3})
    means = pytest.approx(1 / 3), pytest.approx(2 / 3)
    assert read_means(compare_logs(log, verifier=LETTERS)) == means


def test_results_file_covers_several_filters(tmp_path: Path) -> None:
    rows = [
        row(n, v, filter=name)
        for name, values in (("strict", [0, 1]), ("flexible", [1, 1]))
        for n, v in enumerate(values)
    ]
    reported = {"exact_match,strict": 0.5, "exact_match,flexible": 1.0}
    log = write_log(tmp_path / "b", rows=rows, results=reported)
    assert read_means(compare_logs(log, log)) == (0.5, 0.5)
    assert read_means(compare_logs(log, log, filter="flexible")) == (1.0, 1.0)
    file = next(log.parent.glob("results_*.json"))
    content = json.loads(file.read_text())
    content["results"]["toy"]["exact_match,flexible"] = 0.5
    file.write_text(json.dumps(content))
    refuse(log, log, filter="flexible")
