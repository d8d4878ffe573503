"""Logs of two formats before and after: joined by a field of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.comparison import Comparison
from tests.compare.logs import compare_logs, join_notes, row, write_log
from tests.outcomes.made import copy_details


def build_rows(numbers: list[int]) -> list[dict[str, Any]]:
    """Build lm_eval rows for the sums of the other logs: right below three."""
    return [
        {
            **row(number, int(number < 3)),
            "doc": {"question": f"{number}+{number}?", "level": number % 2},
        }
        for number in numbers
    ]


def compare_mixed(
    tmp_path: Path, rows: list[dict[str, Any]], *, turned: bool = False, **choice: Any
) -> Comparison:
    """Compare lm_eval's rows with lighteval's details, or the other way round."""
    before = str(write_log(tmp_path / "before", rows=rows))
    after = str(copy_details(tmp_path / "after", "lighteval_after"))
    sides = (after, before) if turned else (before, after)
    return compare_logs(sides[0], f"tuned={sides[1]}", **choice)


@pytest.mark.parametrize("turned", [False, True])
def test_joins_two_formats_by_field_of_each(turned: bool, tmp_path: Path) -> None:
    """Either format may be before, in any order; each has its own metric, which a note names."""
    on = ["query=question" if turned else "question=query"]
    comparison = compare_mixed(tmp_path, build_rows([4, 2, 1, 3]), turned=turned, on=on)
    (paired,) = comparison.models.values()
    # before: 1 and 2 are right; after: 2 and 4
    assert (paired.before, paired.after, paired.gained, paired.lost) == (0.5, 0.5, 1, 1)
    kind = "lm-eval" if turned else "lighteval"
    metrics = ("em", "exact_match") if turned else ("exact_match", "em")
    assert f"tuned: {metrics[1]} of its {kind} logs is compared with {metrics[0]}" in join_notes(
        comparison
    )


def test_groups_and_clusters_are_fields_before(tmp_path: Path) -> None:
    rows = build_rows([1, 2, 3, 4])
    comparison = compare_mixed(
        tmp_path, rows, on=["question=query"], by="level", cluster="question"
    )
    assert len(comparison.joined.items) == 4
    assert comparison.by_group.keys() == {"0", "1"}
