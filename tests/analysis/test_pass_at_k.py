"""Pass@k against exact fractions of thousands of samples, and K_eq against its definition."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.pass_at_k import (
    format_k,
    k_equivalent,
    list_reported_k,
    mean_pass_at_k,
    pass_at_k,
)


@st.composite
def draw_cases(draw, largest=8):
    samples = draw(st.integers(1, largest))
    return draw(st.integers(0, samples)), samples, draw(st.integers(1, samples))


def compute_exact(passing, samples, k):
    return 1 - Fraction(comb(samples - passing, k), comb(samples, k))


@given(draw_cases(largest=5000))
@settings(max_examples=60)
def test_stays_precise_with_thousands_of_samples(case):
    passing, samples, k = case
    estimate = pass_at_k(np.array([passing]), samples, k)[0]
    assert estimate == pytest.approx(float(compute_exact(passing, samples, k)), rel=1e-10, abs=0)


@pytest.mark.parametrize(
    ("samples", "curve"),
    [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))],
)
def test_reports_powers_of_two_and_last_k(samples, curve):
    assert list_reported_k(samples) == curve


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
