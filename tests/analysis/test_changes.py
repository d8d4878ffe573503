"""Decisions that differ between two models: counts, their laws, and what the paper prints."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.paired import DecisionChanges, count_changes

pairs = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)


@given(pairs)
def test_counts_changes_and_pass_at_1_difference(
    decided: list[tuple[bool, bool]],
) -> None:
    first, second = (np.array(of) for of in zip(*decided, strict=True))
    found = count_changes(first, second)
    assert found.changed == sum(a != b for a, b in decided)
    assert found.difference == Fraction(int(second.sum()) - int(first.sum()), len(decided))
    assert abs(found.difference) <= found.share <= 1
    assert count_changes(second, first) == DecisionChanges(found.n, found.gained, found.lost)
    assert count_changes(first, first).changed == 0


@pytest.mark.parametrize(("changed", "of", "points"), [(331, 1367, "0.07"), (71, 500, "1.4")])
def test_published_counts_match_differences(changed: int, of: int, points: str) -> None:
    """Of so many changes exactly one net gain gives the difference that is printed."""
    digits = len(points.partition(".")[2])
    found = [DecisionChanges(of, lost, changed - lost) for lost in range(changed + 1)]
    right = [c for c in found if f"{100 * float(c.difference):.{digits}f}" == points]
    assert [c.gained - c.lost for c in right] == [{331: 1, 71: 7}[changed]]


def test_rejects_decisions_of_different_problems() -> None:
    with pytest.raises(ValueError, match="shapes"):
        count_changes(np.array([True]), np.array([True, False]))
    with pytest.raises(ValueError, match="shapes"):
        count_changes(np.array([], dtype=bool), np.array([], dtype=bool))
