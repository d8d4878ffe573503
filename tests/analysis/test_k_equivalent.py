"""K_eq: its definition, edge cases, and bounds from a few points of the curve."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.pass_at_k import format_k, k_equivalent, mean_pass_at_k
from tests.analysis.k_eq_bounds import k_equivalent_bounds


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


@given(st.integers(1, 10), st.data())
def test_bounds_contain_exact_value(samples, data):
    passing = np.array(data.draw(st.lists(st.integers(0, samples), min_size=1, max_size=20)))
    pass_at_1 = Fraction(data.draw(st.integers(0, 40)), 40)
    curve = {k: mean_pass_at_k(passing, samples, k) for k in range(1, samples + 1)}
    chosen = data.draw(st.sets(st.sampled_from(sorted(curve))))
    exact = k_equivalent(passing, samples, pass_at_1)
    least, most = k_equivalent_bounds({k: curve[k] for k in chosen}, samples, pass_at_1)
    assert least <= exact <= most
    assert k_equivalent_bounds(curve, samples, pass_at_1) == (exact, exact)
    if data.draw(st.booleans()):
        wider = k_equivalent_bounds({}, samples, pass_at_1)
        assert wider[0] <= least
        assert wider[1] >= most
