"""The Pass@k estimator against exact fractions of thousands of samples."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.pass_at_k import list_reported_k, pass_at_k


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
