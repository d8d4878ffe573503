"""``gapft compare``, ``gapft rejudge`` and ``gapft import`` read the same verdicts from a log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice as Compared
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import UserError
from gapft_harness.importing.formats import read_log
from gapft_harness.importing.rows import ImportChoice as Imported
from gapft_harness.rejudge.choice import RejudgeChoice as Judged
from gapft_harness.rejudge.choice import Rule
from gapft_harness.rejudge.flips import Flips
from gapft_harness.rejudge.logs import judge_logs
from gapft_harness.verdicts.log_files import open_log
from gapft_harness.verdicts.sample_logs import LogRow
from tests.compare.logs import row, write

#: Metric and filter, as the options of each command.
Options = dict[str, Any]


def count_by_compare(log: Path, rows: Sequence[dict[str, Any]], options: Options) -> list[int]:
    """Count the passing samples of each document, in the log's order."""
    failing_rows = [
        {**row, **{n: 0 for n in row["metrics"] if not isinstance(row[n], list)}, "resps": [["x"]]}
        for row in rows
    ]
    for log_row in failing_rows:
        log_row.pop("verdicts", None)
    before = write(log.parents[1] / "before", rows=failing_rows)
    comparison = compare(str(before), [str(before)], Compared(source_samples=[str(log)], **options))
    assert comparison.samples is not None
    passing = dict(
        zip(comparison.rows_before.tolist(), comparison.samples.passing.tolist(), strict=True)
    )
    return [passing[number] for number in sorted(passing)]


def count_by_rejudge(log: Path, rows: Sequence[dict[str, Any]], options: Options) -> list[int]:
    rule = Rule("option_letter", {"rule": "whole_response"})
    result = judge_logs([str(log)], Judged(rule, **options), Flips(0))
    k = result.responses // len(result.before)
    return [round(share * k) for share in result.before]


def count_by_import(log: Path, rows: Sequence[dict[str, Any]], options: Options) -> list[int]:
    passing: Counter[int] = Counter()
    for entry in read_log(log, Imported([str(log)], **options), False):
        assert entry.verdict is not None
        passing[entry.line] += entry.verdict.passed
    return [passing[line] for line in sorted(passing)]


COMMANDS = (count_by_compare, count_by_rejudge, count_by_import)


def build_row(number: int, value: Any, *, k: int = 1, **changes: Any) -> dict[str, Any]:
    """Build a row of k responses for a verifier of letters."""
    return row(number, value, **{"resps": [["A", "B", "C"][:k]], "target": "B", **changes})


def build_row_of_three(number: int, rate: float, **changes: Any) -> dict[str, Any]:
    """Build a row of three responses with ``pass@1`` and a number of the first response only."""
    own = {"metrics": ["exact_match", "pass@1"], "pass@1": rate}
    return build_row(number, 1, k=3, **(own | changes))


def build_verdicts(*passed: int) -> list[dict[str, str]]:
    return [{"status": "pass" if is_pass else "fail", "reason": ""} for is_pass in passed]


AGREED: dict[str, tuple[list[dict[str, Any]], Options, list[int]]] = {
    "a metric of 0 or 1": ([build_row(i, v) for i, v in enumerate([1, 0, 1.0])], {}, [1, 0, 1]),
    "the first metric that is a number of one document": (
        [build_row(i, 1 - i, metrics=["em", "exact_match", "f1"], em=[1, 1], f1=1) for i in (0, 1)],
        {},
        [1, 0],
    ),
    "a metric that is chosen": (
        [build_row(i, 0, metrics=["exact_match", "f1"], f1=1) for i in (0, 1)],
        {"metric": "f1"},
        [1, 1],
    ),
    "the first row's filter": (
        [build_row(i, v, filter=name) for i in (0, 1) for name, v in (("strict", 1), ("none", 0))],
        {},
        [1, 1],
    ),
    "a filter that is chosen": (
        [build_row(i, v, filter=name) for i in (0, 1) for name, v in (("strict", 1), ("none", 0))],
        {"filter": "none"},
        [0, 0],
    ),
    "verdicts before any metric": (
        [build_row(i, 1 - i, verdicts=build_verdicts(i)) for i in (0, 1)],
        {},
        [0, 1],
    ),
    "a metric that is chosen before verdicts": (
        [build_row(i, 1 - i, verdicts=build_verdicts(i)) for i in (0, 1)],
        {"metric": "exact_match"},
        [1, 0],
    ),
    "verdicts on each of K": (
        [
            build_row_of_three(i, i / 3, verdicts=build_verdicts(*[1] * i, *[0] * (3 - i)))
            for i in range(4)
        ],
        {},
        [0, 1, 2, 3],
    ),
    "a pass@1 of 0 or 1": ([build_row_of_three(i, i % 2) for i in range(4)], {}, [0, 3, 0, 3]),
    "the first row decides that verdicts play no part": (
        [build_row_of_three(0, 1), build_row_of_three(1, 0, verdicts=build_verdicts(1, 1, 1))],
        {},
        [3, 0],
    ),
}


@pytest.mark.parametrize("case", AGREED)
def test_commands_agree_on_verdicts(tmp_path: Path, case: str) -> None:
    rows, options, expected = AGREED[case]
    log = write(tmp_path / "log", rows=rows)
    counts = {command.__name__: command(log, rows, options) for command in COMMANDS}
    assert counts == {command.__name__: expected for command in COMMANDS}


REFUSED: dict[str, tuple[list[dict[str, Any]], Options, str]] = {
    "a number of the first alone": (
        [build_row(i, 1, k=3) for i in (0, 1)],
        {},
        "line 1: 3 responses, and exact_match does not say how many of them passed",
    ),
    "a chosen one": (
        [build_row_of_three(i, 1) for i in (0, 1)],
        {"metric": "exact_match"},
        "line 1: 3 responses, and exact_match does not say how many of them passed",
    ),
    "a part": (
        [build_row(0, 1), build_row(1, 0.5)],
        {},
        "line 2: exact_match is 0.5, expected 0 or 1",
    ),
    "a damaged log": (
        [build_row(i, 0, k=3, verdicts=build_verdicts(1, 0)) for i in (0, 1)],
        {},
        "line 1: 2 verdicts on 3 responses; expected one per",
    ),
    "no verdict later": (
        [build_row(0, 1, verdicts=build_verdicts(1)), build_row(1, 1)],
        {},
        "line 2: lacks a verdict on each response",
    ),
    "no whole number": (
        [build_row_of_three(i, 0.5) for i in (0, 1)],
        {},
        "line 1: pass@1 is 0.5 over 3 responses, which is not an integer number",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_rejects_unclear_verdicts(tmp_path: Path, case: str, command: Any) -> None:
    rows, options, expected = REFUSED[case]
    log = write(tmp_path / "log", rows=rows)
    with pytest.raises(UserError) as caught:
        command(log, rows, options)
    assert f"{log}, {expected}" in str(caught.value)


def test_fractional_pass_at_1_gives_count_only(tmp_path: Path) -> None:
    """Counts are enough for states, but not for verdicts on each response."""
    rows = [build_row_of_three(0, 1 / 3), build_row_of_three(1, 2 / 3)]
    log = write(tmp_path / "log", rows=rows)
    assert count_by_compare(log, rows, {}) == [1, 2]
    for command in (count_by_rejudge, count_by_import):
        with pytest.raises(
            UserError, match=r"3 responses, and pass@1 of 0\.333 does not say which"
        ):
            command(log, rows, {})


def test_rejects_metric_better_when_lower(tmp_path: Path) -> None:
    rows = [build_row(i, 1) for i in (0, 1)]
    log = write(tmp_path / "log", rows=rows, higher=False)
    for command in COMMANDS:
        with pytest.raises(UserError, match="is better when lower"):
            command(log, rows, {})


def test_non_numeric_scores_choose_no_option(tmp_path: Path) -> None:
    arguments = {f"gen_args_{i}": {"arg_1": text} for i, text in enumerate("ab")}

    def read_response(*scores: Any) -> str:
        logged = json.loads(json.dumps([[score, "False"] for score in scores]))
        fields = {"arguments": arguments, "resps": [["text"]], "filtered_resps": logged}
        return LogRow(open_log(tmp_path / "log.jsonl"), 1, 0, fields).response

    assert read_response("-2.5", "-1") == "option 2: b"
    assert read_response(10**400, "-1") == "text"
