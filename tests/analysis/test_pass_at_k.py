"""The Pass@k estimator against enumeration, exact fractions, and its laws."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.pass_at_k import list_reported_k, mean_pass_at_k, pass_at_k


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


@given(st.integers(2, 3000), st.data())
@settings(max_examples=60)
def test_grows_with_k_and_passing_samples(samples, data):
    k = data.draw(st.integers(1, samples - 1))
    counts = np.arange(samples + 1)
    fewer, more = pass_at_k(counts, samples, k), pass_at_k(counts, samples, k + 1)
    assert (more >= fewer).all()
    assert (np.diff(fewer) >= 0).all()
    assert fewer[0] == 0
    assert fewer[-1] == 1
    assert (fewer[samples - k + 1 :] == 1).all()


@given(st.integers(1, 40), st.data())
def test_mean_ignores_order(samples, data):
    counts = np.array(data.draw(st.lists(st.integers(0, samples), min_size=1, max_size=30)))
    k = data.draw(st.integers(1, samples))
    mean = mean_pass_at_k(counts, samples, k)
    assert mean == sum(compute_exact(int(c), samples, k) for c in counts) / Fraction(len(counts))
    assert mean == mean_pass_at_k(counts[::-1], samples, k)
    assert float(mean) == pytest.approx(pass_at_k(counts, samples, k).mean())


@pytest.mark.parametrize(
    ("samples", "curve"),
    [(1, (1,)), (2, (1, 2)), (5, (1, 2, 4, 5)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))],
)
def test_reports_powers_of_two_and_last_k(samples, curve):
    assert list_reported_k(samples) == curve
