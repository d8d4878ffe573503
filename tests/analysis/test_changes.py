"""Decisions that differ between two models: counts and laws."""

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
    first, second = (np.array(decisions) for decisions in zip(*decided, strict=True))
    changes = count_changes(first, second)
    assert changes.changed == sum(a != b for a, b in decided)
    assert changes.difference == Fraction(int(second.sum()) - int(first.sum()), len(decided))
    assert abs(changes.difference) <= changes.share <= 1
    assert count_changes(second, first) == DecisionChanges(changes.n, changes.gained, changes.lost)
    assert count_changes(first, first).changed == 0


def test_rejects_decisions_of_different_problems() -> None:
    with pytest.raises(ValueError, match="shapes"):
        count_changes(np.array([True]), np.array([True, False]))
    with pytest.raises(ValueError, match="shapes"):
        count_changes(np.array([], dtype=bool), np.array([], dtype=bool))
