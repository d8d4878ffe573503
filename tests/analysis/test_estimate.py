"""Wilson's and Newcombe's intervals: formulas, scipy, and their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from gapft_harness.analysis.estimate import estimate_paired_difference, estimate_share


@pytest.mark.parametrize(("passing", "n"), [(0, 12), (12, 12), (3, 12), (0, 1), (331, 1367)])
def test_wilson_matches_scipy(passing: int, n: int) -> None:
    expected = binomtest(passing, n).proportion_ci(method="wilson")
    share = estimate_share(passing / n, n)
    assert (share.low, share.high) == pytest.approx((expected.low, expected.high))


def build_pairs(both: int, lost: int, gained: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    sizes = (both, lost, gained, neither)
    return np.repeat([1, 1, 0, 0], sizes), np.repeat([1, 0, 1, 0], sizes)


def compute_from_counts(both: int, lost: int, gained: int, neither: int) -> tuple[float, float]:
    """Compute Newcombe's method 10 as he writes it, from the four counts."""
    n = both + lost + gained + neither
    first, second = (both + gained) / n, (both + lost) / n
    low_1, high_1 = binomtest(both + gained, n).proportion_ci(method="wilson")
    low_2, high_2 = binomtest(both + lost, n).proportion_ci(method="wilson")
    product = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    surplus = both * neither - gained * lost
    if surplus > 0:
        surplus = max(surplus - n / 2, 0)
    phi = surplus / math.sqrt(product) if product else 0.0
    below, above = first - low_1, high_2 - second
    delta = math.sqrt(below**2 - 2 * phi * below * above + above**2)
    below, above = high_1 - first, second - low_2
    epsilon = math.sqrt(below**2 - 2 * phi * below * above + above**2)
    return first - second - delta, first - second + epsilon


@pytest.mark.parametrize(
    "counts", [(36, 12, 2, 0), (0, 0, 0, 54), (54, 0, 0, 0), (30, 0, 0, 10), (5, 9, 3, 20)]
)
def test_newcombe_matches_formula_of_counts(counts: tuple[int, int, int, int]) -> None:
    estimate = estimate_paired_difference(0.0, *build_pairs(*counts))
    assert (estimate.low, estimate.high) == pytest.approx(compute_from_counts(*counts))


@given(st.tuples(*[st.integers(0, 30)] * 4).filter(any))
def test_newcombe_has_width_and_mirrors(counts: tuple[int, int, int, int]) -> None:
    before, after = build_pairs(*counts)
    difference = float(after.mean() - before.mean())
    estimate = estimate_paired_difference(difference, before, after)
    assert -1 <= estimate.low <= difference + 1e-12
    assert difference - 1e-12 <= estimate.high <= 1
    assert estimate.high - estimate.low > 0
    mirrored = estimate_paired_difference(-difference, after, before)
    assert (mirrored.low, mirrored.high) == pytest.approx((-estimate.high, -estimate.low))
