"""One log says the same to each use that needs to know what passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.comparison import compare
from gapft_harness.compare.options import CompareOptions as Compared
from gapft_harness.compare.options import Rule
from gapft_harness.core.errors import UserError
from gapft_harness.outcomes.logs import open_log
from gapft_harness.recipe.sections import LogResponses
from gapft_harness.stages.search.log_responses import read_responses
from tests.compare.logs import row, write_log

#: Metric and filter, as the options of each command.
Options = dict[str, Any]


def by_compare(log: Path, rows: Sequence[dict[str, Any]], options: Options) -> list[int]:
    """Of each document in the log's order, how many of its samples passed."""
    wrong = [
        {**one, **{n: 0 for n in one["metrics"] if not isinstance(one[n], list)}, "resps": [["x"]]}
        for one in rows
    ]
    for one in wrong:
        one.pop("verdicts", None)
    before = write_log(log.parents[1] / "before", rows=wrong)
    found = compare(str(before), [str(before)], Compared(source_samples=[str(log)], **options))
    assert found.samples is not None
    passing = dict(zip(found.joined.before.tolist(), found.samples.passing.tolist(), strict=True))
    return [passing[number] for number in sorted(passing)]


def by_verifier(log: Path, rows: Sequence[dict[str, Any]], options: Options) -> list[int]:
    """As the verdicts before those of a verifier."""
    rule = Rule("option_letter", {"rule": "whole_response"})
    found = compare(str(log), [], Compared(verifier=rule, **options))
    shares = dict(zip(found.joined.before.tolist(), found.numbers.before.tolist(), strict=True))
    k = found.before.count_responses(0)
    return [round(shares[number] * k) for number in sorted(shares)]


def by_search(log: Path, rows: Sequence[dict[str, Any]], options: Options) -> list[int]:
    passing: Counter[int] = Counter()
    for response in read_responses(open_log(log), LogResponses(**options), False):
        assert response.passed is not None
        passing[response.location] += response.passed
    return [*passing.values()]


COMMANDS = (by_compare, by_verifier, by_search)


def letters(number: int, value: Any, *, k: int = 1, **changes: Any) -> dict[str, Any]:
    """A row of k responses that a verifier of letters takes."""
    return row(number, value, **{"resps": [["A", "B", "C"][:k]], "target": "B", **changes})


def several(number: int, rate: float, **changes: Any) -> dict[str, Any]:
    """A row of three responses with a ``pass@1``, and a number that speaks of the first alone."""
    own = {"metrics": ["exact_match", "pass@1"], "pass@1": rate}
    return letters(number, 1, k=3, **(own | changes))


def verdicts(*passed: int) -> list[dict[str, str]]:
    return [{"status": "pass" if one else "fail", "reason": ""} for one in passed]


AGREED: dict[str, tuple[list[dict[str, Any]], Options, list[int]]] = {
    "a metric of 0 or 1": ([letters(i, v) for i, v in enumerate([1, 0, 1.0])], {}, [1, 0, 1]),
    "the first metric that is a number of one document": (
        [letters(i, 1 - i, metrics=["em", "exact_match", "f1"], em=[1, 1], f1=1) for i in (0, 1)],
        {},
        [1, 0],
    ),
    "a metric that is chosen": (
        [letters(i, 0, metrics=["exact_match", "f1"], f1=1) for i in (0, 1)],
        {"metric": "f1"},
        [1, 1],
    ),
    "the first row's filter": (
        [letters(i, v, filter=name) for i in (0, 1) for name, v in (("strict", 1), ("none", 0))],
        {},
        [1, 1],
    ),
    "a filter that is chosen": (
        [letters(i, v, filter=name) for i in (0, 1) for name, v in (("strict", 1), ("none", 0))],
        {"filter": "none"},
        [0, 0],
    ),
    "verdicts before any metric": (
        [letters(i, 1 - i, verdicts=verdicts(i)) for i in (0, 1)],
        {},
        [0, 1],
    ),
    "a metric that is chosen before verdicts": (
        [letters(i, 1 - i, verdicts=verdicts(i)) for i in (0, 1)],
        {"metric": "exact_match"},
        [1, 0],
    ),
    "verdicts on each of K": (
        [several(i, i / 3, verdicts=verdicts(*[1] * i, *[0] * (3 - i))) for i in range(4)],
        {},
        [0, 1, 2, 3],
    ),
    "a pass@1 of 0 or 1": ([several(i, i % 2) for i in range(4)], {}, [0, 3, 0, 3]),
    "the first row decides that verdicts play no part": (
        [several(0, 1), several(1, 0, verdicts=verdicts(1, 1, 1))],
        {},
        [3, 0],
    ),
}


@pytest.mark.parametrize("case", AGREED)
def test_a_log_says_the_same_to_every_command(tmp_path: Path, case: str) -> None:
    rows, options, expected = AGREED[case]
    log = write_log(tmp_path / "log", rows=rows)
    told = {command.__name__: command(log, rows, options) for command in COMMANDS}
    assert told == {command.__name__: expected for command in COMMANDS}


def test_a_pass_at_1_between_says_how_many_and_not_which(tmp_path: Path) -> None:
    """States need no more; verdicts on each response do."""
    rows = [several(0, 1 / 3), several(1, 2 / 3)]
    log = write_log(tmp_path / "log", rows=rows)
    assert by_compare(log, rows, {}) == by_verifier(log, rows, {}) == [1, 2]
    with pytest.raises(UserError, match="pass@1"):
        by_search(log, rows, {})


def test_a_metric_that_is_better_when_lower_says_nothing(tmp_path: Path) -> None:
    rows = [letters(i, 1) for i in (0, 1)]
    log = write_log(tmp_path / "log", rows=rows, higher=False)
    for command in COMMANDS:
        with pytest.raises(UserError):
            command(log, rows, {})
