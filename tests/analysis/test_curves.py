"""Comparison of two Pass@k curves: closed forms, order, and the band's simulate_coverage."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from gapft_harness.analysis.curves import CurveDifference, compare_curves
from gapft_harness.core.streams import Stream
from tests.analysis.simulated_curves import EFFECTS
from tests.benchmarks.curves import simulate_coverage

STREAM = Stream(0, "test")
counts = st.integers(1, 6).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.integers(1, 8).flatmap(
            lambda problems: st.tuples(
                st.lists(st.integers(0, n), min_size=problems, max_size=problems),
                st.lists(
                    st.lists(st.integers(0, n), min_size=problems, max_size=problems),
                    min_size=1,
                    max_size=4,
                ),
            )
        ),
    )
)


def compare_counts(before: Any, after: Any, n: int, **options: Any) -> CurveDifference:
    ks = range(1, n + 1)
    return compare_curves(np.array(before), n, np.array(after), n, ks, stream=STREAM, **options)


@given(counts)
def test_rates_match_enumerated_sample_choices(drawn: Any) -> None:
    n, (before, after) = drawn
    any_curve, all_curve = (
        compare_counts(before, after, n, all_right=require_all) for require_all in (False, True)
    )
    for index, k in enumerate(range(1, n + 1)):
        for passing, any_right, all_right in (
            ([before], any_curve.before, all_curve.before),
            (after, any_curve.after, all_curve.after),
        ):
            chosen = [
                choice
                for seed in passing
                for c in seed
                for choice in combinations([i < c for i in range(n)], k)
            ]
            assert any_right[index] == pytest.approx(
                np.mean([any(outcomes) for outcomes in chosen])
            )
            assert all_right[index] == pytest.approx(
                np.mean([all(outcomes) for outcomes in chosen])
            )


@given(counts, st.randoms(use_true_random=False))
def test_ignores_order_of_problems_and_seeds(drawn: Any, random: Any) -> None:
    n, (before, after) = drawn
    problems, seeds = [*range(len(before))], [*range(len(after))]
    random.shuffle(problems)
    random.shuffle(seeds)
    original = compare_counts(before, after, n)
    shuffled = compare_counts(np.array(before)[problems], np.array(after)[seeds][:, problems], n)
    for name in ("before", "after", "low", "high"):
        a, b = getattr(original, name), getattr(shuffled, name)
        assert (a is None) == (b is None) == (len(before) == 1 and name in ("low", "high"))
        if a is not None:
            # a spread from rounding alone may differ by rounding
            assert a == pytest.approx(b, abs=1e-6)


def test_many_problems_give_students_interval() -> None:
    """Without variation between problems, four seeds are four numbers."""
    passing = np.array([[2], [3], [5], [6]]).repeat(50, axis=1)
    curve = compare_curves(np.full(50, 4), 8, passing, 8, [1], stream=STREAM)
    rates = passing[:, 0] / 8 - 0.5
    assert curve.low is not None
    half = t.ppf(0.975, 3) * rates.std(ddof=1) / 2
    assert curve.difference[0] - curve.low[0] == pytest.approx(half, rel=0.06)


def test_cluster_counts_as_one_problem() -> None:
    rng = np.random.default_rng(4)
    before, after = rng.integers(0, 5, 40), rng.integers(0, 5, (3, 40))
    whole = compare_counts(before, after, 4)
    doubled = compare_counts(
        before.repeat(2), after.repeat(2, axis=1), 4, clusters=np.arange(40).repeat(2)
    )
    assert doubled.low == pytest.approx(whole.low)
    apart = compare_counts(before.repeat(2), after.repeat(2, axis=1), 4)
    assert apart.low is not None
    assert whole.low is not None
    assert (apart.low > whole.low).all()


@given(counts)
def test_seedwise_comparison_equals_source_comparison(drawn: Any) -> None:
    n, (before, after) = drawn
    other = np.array([before] * len(after))
    by_source, by_seed = compare_counts(before, after, n), compare_counts(other, after, n)
    for name in ("before", "after", "low", "high"):
        a, b = getattr(by_source, name), getattr(by_seed, name)
        assert (a is None) == (b is None)
        assert a is None or a == pytest.approx(b)
    same = compare_counts(after, after, n)
    assert (same.difference == 0).all()
    assert same.low is None or (same.low == same.high).all()


def test_single_problem_has_no_band() -> None:
    curve = compare_counts([1], [[2], [3]], 4)
    assert (curve.low, curve.high) == (None, None)
    assert curve.behind_set == (1, 2, 3, 4, None)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ([0.1, 0.1, 0.1], [0.2, 0.2, 0.2], (None,)),
        ([0.1, -0.1, -0.3], [0.2, 0.2, 0.2], (2, 4, None)),
        ([-0.1, -0.2, -0.3], [0.1, -0.1, -0.1], (1, 2)),
        ([-0.3, 0.1, -0.3], [-0.2, 0.2, 0.2], (1,)),
    ],
)
def test_behind_set_follows_from_band(low: Any, high: Any, expected: Any) -> None:
    zero = np.zeros(3)
    assert CurveDifference((1, 2, 4), zero, zero, *map(np.array, (low, high)), 3).behind_set == (
        expected
    )


def test_sampling_noise_is_not_counted_twice() -> None:
    """If seeds differ only by sampling noise, the band shows the problems' noise once."""
    rng, widths = np.random.default_rng(5), []
    for number in range(60):
        after = rng.binomial(8, 0.5, (5, 400))
        stream = Stream(0, f"draw/{number}")
        curve = compare_curves(np.full(400, 4), 8, after, 8, [1], stream=stream)
        assert curve.low is not None
        widths.append(curve.difference[0] - curve.low[0])
    assert 0.9 < np.median(widths) / (1.96 * np.sqrt(0.25 / 8 / 5 / 400)) < 1.3


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("seeds", [3, 5])
def test_band_covers_curve_in_95_percent(seeds: int, effect: str) -> None:
    """These studies differ from the benchmark's; a band that no study misses is too wide."""
    coverage_rate, crossing_rate = simulate_coverage(seeds, effect, 0.15, count=400, seed=12)
    assert 0.93 - 0.038 <= coverage_rate < 1, "3.5 standard errors below the benchmark's least"
    assert crossing_rate >= coverage_rate - 0.005


def test_finds_planted_crossing() -> None:
    coverage_rate, crossing_rate = simulate_coverage(8, "crossing", 0.05, count=100, seed=13)
    assert min(coverage_rate, crossing_rate) >= 0.88
