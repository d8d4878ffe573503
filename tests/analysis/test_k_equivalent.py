"""K_eq: its definition and edge cases."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.pass_at_k import format_k, k_equivalent, mean_pass_at_k


@given(st.integers(1, 12), st.data())
def test_matches_definition(samples, data):
    passing = np.array(data.draw(st.lists(st.integers(0, samples), min_size=1, max_size=20)))
    total = data.draw(st.integers(1, 60))
    pass_at_1 = Fraction(data.draw(st.integers(0, total)), total)
    reached = [k for k in range(1, samples + 1) if mean_pass_at_k(passing, samples, k) <= pass_at_1]
    assert k_equivalent(passing, samples, pass_at_1) == max(reached, default=0)


def test_equality_counts_and_is_exact():
    passing = np.array([1, 1, 1])  # Pass@1 is exactly 1/3, which no float represents
    assert k_equivalent(passing, 3, Fraction(1, 3)) == 1
    assert k_equivalent(passing, 3, Fraction(333333333333333333, 10**18)) == 0


def test_formats_below_pass_at_1_as_less_than_one():
    """The source's greedy accuracy is not used, only its samples."""
    assert format_k(k_equivalent(np.array([4, 0]), 4, Fraction(49, 100))) == "<1"
    assert format_k(k_equivalent(np.array([4, 0]), 4, Fraction(1, 2))) == "4"
