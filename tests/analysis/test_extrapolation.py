"""Bounds on Pass@k beyond the samples drawn, checked on pools with known chances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.extrapolation import MULTIPLES, bound_pass_at_k
from tests.analysis.simulated_pools import CHECKED_ON, KINDS, SAMPLES, draw_pools, is_inside


def test_bounds_cover_pass_at_k() -> None:
    """60 pools of 200 problems of each kind; intervals a third as wide would miss many."""
    inside, narrower = [], []
    for kind in KINDS:
        for pool in draw_pools(kind, 60, 200, CHECKED_ON):
            for k in (multiple * SAMPLES for multiple in MULTIPLES):
                bounds = bound_pass_at_k(pool.passing, SAMPLES, k)
                middle, half = (bounds.low + bounds.high) / 2, (bounds.high - bounds.low) / 6
                inside.append(is_inside(bounds, pool.pass_at(k)))
                narrower.append(is_inside(Interval(middle - half, middle + half), pool.pass_at(k)))
    assert np.mean(inside) >= 0.95
    assert np.mean(narrower) < 0.85


@settings(max_examples=25, deadline=None)
@given(
    chances=arrays.arrays(float, st.integers(1, 4), elements=st.floats(0, 1)),
    samples=st.integers(2, 12),
    multiple=st.integers(2, 8),
)
def test_bounds_cover_discrete_chances(chances: np.ndarray, samples: int, multiple: int) -> None:
    """Expected counts of a few distinct chances keep their true Pass@k within the bounds."""
    problems = np.repeat(chances, 5_000)
    uniform = (np.arange(5_000) + 0.5) / 5_000
    passing = np.concatenate([stats.binom.ppf(uniform, samples, p) for p in chances]).astype(int)
    k = multiple * samples
    truth = float(np.mean(1 - (1 - problems) ** k))
    bounds = bound_pass_at_k(passing, samples, k)
    assert bounds.low - 1e-3 <= truth <= bounds.high + 1e-3


def test_bounds_widen_with_k_and_narrow_with_problems() -> None:
    rng = np.random.default_rng(0)
    passing = rng.binomial(8, rng.beta(0.5, 1.0, 4_000))
    few, many = (
        [bound_pass_at_k(counts, 8, k) for k in (9, 16, 32, 64)]
        for counts in (passing[:200], passing)
    )
    for bounds in (few, many):
        assert [bound.low for bound in bounds] == sorted(bound.low for bound in bounds)
        assert [bound.high for bound in bounds] == sorted(bound.high for bound in bounds)
        assert [bound.high - bound.low for bound in bounds] == sorted(
            bound.high - bound.low for bound in bounds
        )
    assert all(
        large.high - large.low < small.high - small.low
        for small, large in zip(few, many, strict=True)
    )


def test_zero_passes_bound_pass_at_k_from_above() -> None:
    """0 of 8,000 samples passed: a share of 3.84 / 8,000 would show one with probability 98%."""
    nothing = bound_pass_at_k(np.zeros(1_000, int), 8, 16)
    assert nothing.low == 0
    assert nothing.high == pytest.approx(16 * 3.84 / 8_000, rel=0.7)
    everything = bound_pass_at_k(np.full(1_000, 8), 8, 16)
    assert everything.high == 1
    assert everything.low > 0.99
    assert bound_pass_at_k(np.array([1]), 8, 16) == Interval(0, 1), "one problem tells nothing"


@pytest.mark.parametrize(("passing", "samples", "k"), [([], 8, 16), ([0], 0, 16), ([1], 8, 8)])
def test_rejects_input_without_extrapolation(passing: list[int], samples: int, k: int) -> None:
    with pytest.raises(ValueError, match="expected problems"):
        bound_pass_at_k(np.array(passing, int), samples, k)
