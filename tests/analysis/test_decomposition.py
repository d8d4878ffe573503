"""States and counts; tests/laws has the exact identity, test_published.py the paper's tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.decomposition import (
    STABLE_ITEMS,
    Decomposition,
    find_unstable_states,
    partition,
)
from gapft_harness.core.records import classify_state


def test_rejects_impossible_counts():
    with pytest.raises(ValueError, match="more changed problems"):
        Decomposition(3, 2, 1, regressed_g=0, corrected_s=3, corrected_u=0)


def test_lists_states_with_few_problems():
    assert find_unstable_states(STABLE_ITEMS, STABLE_ITEMS - 1, 0) == ("S", "U")


@given(st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), min_size=3, max_size=3))))
def test_partition_classifies_each_problem(problems):
    passed = np.array([passed for passed, _ in problems], dtype=bool)
    drawn = np.array([samples for _, samples in problems], dtype=bool).reshape(-1, 3)
    expected = [classify_state(*outcomes) for outcomes in problems]
    assert partition(passed, drawn).tolist() == expected


@pytest.mark.parametrize("shape", [(2, 1), (3,), (1, 3, 1)])
def test_rejects_samples_of_different_problems(shape):
    with pytest.raises(ValueError, match="shapes"):
        partition(np.array([True, False, False]), np.zeros(shape, dtype=bool))
