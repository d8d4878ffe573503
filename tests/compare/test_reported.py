"""What is formed from a log's rows is the number that the log itself reports, or is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import Comparison, compare
from gapft_harness.compare.document import build_results as results_of
from gapft_harness.core.errors import UserError
from gapft_harness.rejudge.choice import RejudgeChoice, Rule
from gapft_harness.rejudge.document import build_document, build_results
from gapft_harness.rejudge.flips import Flips
from gapft_harness.rejudge.logs import LogsJudged, judge_logs
from tests.compare.logs import row, write

#: What lm_eval's tasks write for documents that a metric does not apply to.
MARKS = [-1.0, -100.0, 999.0]


def measured(length: int, values: list[float | None], mark: float) -> list[dict[str, Any]]:
    """Rows of a task with a metric for each length, as RULER's: a mark for the other lengths."""
    first, second = str(length), str(2 * length)
    half = len(values) // 2
    return [
        row(number, 0, metrics=[first], **{first: value})
        if number < half
        else row(number, 0, metrics=[first, second], **{first: mark, second: value})
        for number, value in enumerate(values)
    ]


def compared(before: Path, after: Path, **choice: Any) -> Comparison:
    return compare(str(before), [f"after={after}"], CompareChoice(**choice))


def refused(before: Path, after: Path, **choice: Any) -> str:
    with pytest.raises(UserError) as caught:
        compared(before, after, **choice)
    return str(caught.value)


def told(found: Comparison) -> str:
    return "\n".join(note.line for note in found.notes)


def means(found: Comparison) -> tuple[float, float]:
    paired = found.findings.models["after"]
    return paired.before, paired.after


@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_documents_that_are_not_measured_are_left_out(tmp_path: Path, mark: float) -> None:
    sides = []
    for name, values in (("b", [1, 1, 1, 1, 0, 0, 1, 0]), ("a", [0, 1, 1, 1, 1, 1, 1, 0])):
        reported = {"64,none": fmean(values[:4]), "128,none": fmean(values[4:])}
        sides.append(write(tmp_path / name, rows=measured(64, [*values], mark), results=reported))
    found = compared(*sides)
    assert means(found) == (1.0, 0.75)
    assert len(found.items) == 4
    assert "4 of 8 (before), 4 of 8 (after)" in told(found)
    assert means(compared(*sides, metric="128")) == (0.25, 0.75)
    assert "unknown metric '256'" in refused(*sides, metric="256")


def test_a_negative_mark_without_a_reported_number_is_asked_about(tmp_path: Path) -> None:
    log = write(tmp_path / "b", rows=measured(64, [1, 1, 0, 1], -1.0))
    assert "-1 for 2 of 4 documents" in refused(log, log)
    assert "results" in refused(log, log)
    whole = write(tmp_path / "c", rows=measured(64, [-1, -1, -1, -1], -1.0))
    assert "--metric" in refused(whole, whole)
    assert means(compared(log, log, metric="128")) == (0.5, 0.5)


logliks = st.lists(st.floats(-20, -0.01), min_size=4, max_size=8)


def perplexity_log(folder: Path, values: list[float], beside: bool = True) -> Path:
    rows = [row(n, 0, metrics=["perplexity"], perplexity=v) for n, v in enumerate(values)]
    log = write(
        folder,
        rows=rows,
        results={"perplexity,none": math.exp(-fmean(values))},
        facts={"higher_is_better": {"toy": {"perplexity": False}}},
    )
    if not beside:
        next(folder.glob("results_*.json")).unlink()
    return log


@pytest.mark.parametrize("beside", [True, False])
def test_log_likelihoods_behind_a_perplexity_are_compared_as_its_logarithm(
    tmp_path: Path, beside: bool
) -> None:
    """The likelier text is never called the worse."""
    values = [-3.0 - 0.1 * (n % 5) for n in range(40)]
    worse = perplexity_log(tmp_path / "b", values, beside)
    better = perplexity_log(tmp_path / "a", [v + 1 for v in values], beside)
    found = compared(worse, better, margin=0.1)
    assert means(found) == (pytest.approx(3.2), pytest.approx(2.2))
    assert found.higher_is_better is False
    assert [held.verdict for held in found.check_margin()] == ["not worse"]
    assert f"{math.exp(3.2):.4g}" in told(found)
    assert results_of(found)["metric"] == "log perplexity"
    assert [held.verdict for held in compared(better, worse, margin=0.1).check_margin()] == [
        "worse"
    ]
    assert "lower is better" in refused(worse, better, higher_is_better=True)


@settings(max_examples=20, deadline=None)
@given(values=logliks)
def test_the_logarithm_of_any_reported_perplexity(
    values: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = perplexity_log(tmp_path_factory.mktemp("any"), values)
    before, after = means(compared(log, log))
    assert before == after == pytest.approx(-fmean(values))


def test_perplexities_on_one_side_alone_are_refused(tmp_path: Path) -> None:
    logarithms = perplexity_log(tmp_path / "b", [-1.0, -2.0, -3.0, -2.5])
    rows = [row(n, 0, metrics=["perplexity"], perplexity=5.0 + n) for n in range(4)]
    whole = write(tmp_path / "a", rows=rows, results={"perplexity,none": 6.5})
    assert "log-likelihoods" in refused(logarithms, whole)


def reporting(folder: Path, values: list[float], reported: float, **facts: Any) -> Path:
    rows = [
        row(n, v, metrics=["exact_match", "acc"], acc=float(v > 0)) for n, v in enumerate(values)
    ]
    share = fmean(float(v > 0) for v in values)
    return write(
        folder, rows=rows, results={"exact_match,none": reported, "acc,none": share}, **facts
    )


@pytest.mark.parametrize(
    "reported",
    [0.9, median([0.0, 0.1, 0.2, 1.0]), math.sqrt(0.325), 1 - 0.325, 0.0],
    ids=["another evaluation", "median", "root", "turned round", "nothing"],
)
def test_rows_that_do_not_make_the_reported_number_are_refused(
    tmp_path: Path, reported: float
) -> None:
    log = reporting(tmp_path / "b", [0.0, 0.1, 0.2, 1.0], reported)
    message = refused(log, log)
    assert "results_" in message
    assert "0.325" in message
    assert f"{reported:.6g}" in message
    assert means(compared(log, log, metric="acc")) == (0.75, 0.75)


@pytest.mark.parametrize("reported", [0.325, 32.5, 0.325 * (1 + 1e-12)])
def test_the_mean_is_the_reported_number_also_in_percent(tmp_path: Path, reported: float) -> None:
    log = reporting(tmp_path / "b", [0.0, 0.1, 0.2, 1.0], reported)
    assert means(compared(log, log)) == (pytest.approx(0.325),) * 2
    third = reporting(tmp_path / "c", [0, 0, 1], 0.3333)
    assert means(compared(third, third)) == (pytest.approx(1 / 3),) * 2


@pytest.mark.parametrize("nothing", [None, math.nan, "null", "NaN", " n/a", ""])
def test_a_first_row_without_a_number_takes_no_other_metric(tmp_path: Path, nothing: Any) -> None:
    def rows(values: list[Any]) -> list[dict[str, Any]]:
        return [row(n, v, metrics=["exact_match", "f1"], f1=0.5) for n, v in enumerate(values)]

    before = write(tmp_path / "b", rows=rows([nothing, 0, 1, 1, 0]))
    after = write(tmp_path / "a", rows=rows([0, 1, 1, nothing, 0]))
    message = refused(before, after)
    assert "line 1: metric 'exact_match'" in message
    assert "1 of 5" in message
    found = compared(before, after, common=True)
    assert means(found) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert "1 of 5 (before), 1 of 5 (after)" in told(found)
    nobody = write(tmp_path / "c", rows=rows([nothing] * 5))
    assert "5 of 5" in refused(nobody, after, common=True)
    assert means(compared(before, after, metric="f1")) == (0.5, 0.5)


def test_infinity_is_no_number_and_no_absence(tmp_path: Path) -> None:
    log = write(tmp_path / "b", [1, math.inf, 0])
    assert "line 2: metric 'exact_match' is Infinity" in refused(log, log, common=True)


def test_the_tasks_configuration_says_which_way_is_better(tmp_path: Path) -> None:
    entry = {"metric": "exact_match", "higher_is_better": False}
    facts = {"higher_is_better": {}, "configs": {"toy": {"metric_list": [entry]}}}
    values = [0.5, 0.25, 0.75, 0.5] * 10
    worse = write(tmp_path / "b", values, facts=facts)
    better = write(tmp_path / "a", [v - 0.2 for v in values], facts=facts)
    found = compared(worse, better, margin=0.05)
    assert found.higher_is_better is False
    assert [held.verdict for held in found.check_margin()] == ["not worse"]


def old(fields: dict[str, Any]) -> dict[str, Any]:
    """A row as lm_eval wrote it before November 2024."""
    return {
        **{key: value for key, value in fields.items() if key not in ("filter", "metrics")},
        "arguments": [["What is it?", {"until": ["\n"]}]],
    }


def test_logs_that_name_neither_filter_nor_metrics(tmp_path: Path) -> None:
    rows = [old(row(n, v)) for n, v in enumerate([0, 1, 0, 1])]
    for one in rows:
        del one["doc_id"]
    log = write(tmp_path / "b", rows=rows)
    other = write(tmp_path / "a", rows=[old(row(n, 1)) for n in range(4)])
    assert means(compared(log, other, metric="exact_match")) == (0.5, 1.0)
    found = compared(log, other)
    assert means(found) == (0.5, 1.0)
    assert found.metric is not None
    assert found.metric.metric == "exact_match"
    bare = write(
        tmp_path / "c", rows=[{k: v for k, v in r.items() if k != "exact_match"} for r in rows]
    )
    assert "names no metrics" in refused(bare, other)


# Judged again


def again(*logs: Path, **choice: Any) -> LogsJudged:
    rule = Rule("option_letter", {"rule": "whole_response"})
    return judge_logs([str(log) for log in logs], RejudgeChoice(rule, **choice), Flips(5))


def letters(number: int, value: Any, said: str, **changes: Any) -> dict[str, Any]:
    return row(number, value, **{"resps": [[said]], "target": "B", **changes})


def ungraded(number: int, said: str) -> dict[str, Any]:
    """A row of ``lm_eval --predict_only``."""
    told = letters(number, 0, said, metrics=["bypass"], bypass=999)
    del told["exact_match"]
    return told


def test_a_log_that_graded_nothing_is_not_compared_and_is_judged_alone(tmp_path: Path) -> None:
    rows = [ungraded(n, said) for n, said in enumerate("BACB")]
    facts = {"higher_is_better": {"toy": {"bypass": False}}}
    log = write(tmp_path / "b", rows=rows, results={"bypass,none": 999}, facts=facts)
    assert "nothing was graded" in refused(log, log)
    assert "rejudge" in refused(log, log, metric="bypass")
    found = again(log)
    assert not found.is_graded
    told = build_results(found)
    assert (told["after"], told["before"], told["right_now"]) == (0.5, None, None)
    assert told["verdicts"] == {"fail": 2, "pass": 2}
    build_document(found)
    held = again(log, was=Rule("option_letter", {"rule": "first_explicit"}))
    assert build_results(held)["before"] == 0.5
    with pytest.raises(UserError, match="nothing was graded"):
        again(log, metric="bypass")
    graded = write(tmp_path / "a", rows=[letters(n, 1, "B") for n in range(4)], task="other")
    with pytest.raises(UserError, match="only one of them has verdicts"):
        again(log, graded)


def test_texts_of_one_request_need_no_list_of_their_own(tmp_path: Path) -> None:
    """As lmms-eval logs them."""
    rows = [
        letters(n, v, "", resps=[said], filtered_resps=said)
        for n, (v, said) in enumerate([(1, "B"), (0, "C"), (0, "B")])
    ]
    log = write(tmp_path / "b", rows=rows, results={"exact_match,none": 1 / 3})
    found = again(log)
    assert (build_results(found)["before"], build_results(found)["after"]) == (
        pytest.approx(1 / 3), pytest.approx(2 / 3))  # fmt: skip
    assert [flip.was_answer for flip in found.flips.kept] == ["B"]


def test_what_is_judged_again_is_held_against_the_reported_number_too(tmp_path: Path) -> None:
    rows = [letters(n, n % 2, "B") for n in range(4)]
    assert again(write(tmp_path / "b", rows=rows, results={"exact_match,none": 0.5})).responses == 4
    wrong = write(tmp_path / "c", rows=rows, results={"exact_match,none": 0.75})
    with pytest.raises(UserError, match=r"results_.*reports 0\.75"):
        again(wrong)
    marked = [letters(n, -1.0 if n else 1.0, "B") for n in range(4)]
    with pytest.raises(UserError, match="-1, expected 0 or 1"):
        again(write(tmp_path / "d", rows=marked, results={"exact_match,none": 1.0}))
    nulls = [letters(n, None if n == 2 else 1, "B") for n in range(4)]
    with pytest.raises(UserError, match="line 3: metric 'exact_match' is null"):
        again(write(tmp_path / "e", rows=nulls))


def test_the_results_file_may_be_of_several_tasks_and_filters(tmp_path: Path) -> None:
    rows = [
        row(n, v, filter=name)
        for name, values in (("strict", [0, 1]), ("flexible", [1, 1]))
        for n, v in enumerate(values)
    ]
    reported = {"exact_match,strict": 0.5, "exact_match,flexible": 1.0}
    log = write(tmp_path / "b", rows=rows, results=reported)
    assert means(compared(log, log)) == (0.5, 0.5)
    assert means(compared(log, log, filter="flexible")) == (1.0, 1.0)
    file = next(log.parent.glob("results_*.json"))
    content = json.loads(file.read_text())
    content["results"]["toy"]["exact_match,flexible"] = 0.5
    file.write_text(json.dumps(content))
    assert "under filter flexible" in refused(log, log, filter="flexible")
