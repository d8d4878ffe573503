"""Components of a gain's variance: planted ones come back, and what they ask of a claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gapft_harness.analysis.variance import components, prediction_interval, seeds_needed
from gapft_harness.core.streams import Stream
from tests.benchmarks.noise import recovered

STREAM = Stream(0, "test")
GAINS = np.array([0.10, 0.14, 0.12, 0.08])


def split(replicates: dict[str, np.ndarray], gains: np.ndarray = GAINS) -> dict[str, float]:
    differences = np.zeros((len(gains), 50))
    found = components(gains, replicates, differences, STREAM)
    return {of.cause: of.variance for of in found}


def test_a_component_is_half_the_mean_square_of_a_pair_less_the_engines() -> None:
    moved = GAINS + np.array([0.02, -0.02, 0.04, 0.0])
    found = split({"none": GAINS + 0.01, "order": moved})
    assert found["none"] == pytest.approx(0.01**2 / 2)
    assert found["order"] == pytest.approx((4 + 4 + 16 + 0) * 1e-4 / 4 / 2 - 0.01**2 / 2)


def test_the_choice_of_examples_is_what_seeds_spread_beyond_their_replicates() -> None:
    found = split({"all": GAINS + np.array([0.01, -0.01, 0.01, -0.01])})
    pairs = np.stack([GAINS, GAINS + np.array([0.01, -0.01, 0.01, -0.01])])
    between, within = 2 * pairs.mean(axis=0).var(ddof=1), 0.01**2 / 2
    assert found["all"] == pytest.approx(within)
    assert found["selection"] == pytest.approx((between - within) / 2)
    assert split({"all": GAINS})["selection"] == pytest.approx(GAINS.var(ddof=1))


def test_where_seeds_spread_less_than_replicates_the_interval_does_not_say_nothing() -> None:
    apart, shared = np.array([20, -20, 20, -20, 0]) / 1000, np.array([4, -4, 0, 4, -4]) / 1000
    gains, again = 0.1 + shared + apart, 0.1 + shared - apart
    found = components(gains, {"all": again}, np.zeros((5, 9)), STREAM)
    (selection,) = [of for of in found if of.cause == "selection"]
    assert selection.variance == 0 == selection.interval.low
    assert selection.interval.high > 0


def test_another_audit_moves_a_gain_by_the_standard_error_of_its_problems() -> None:
    differences = np.array([[1.0, 0, 0, -1, 1, 0, 0, 0]] * 3)
    (items,) = components(np.full(3, 0.125), {}, differences, STREAM)
    assert items.points == pytest.approx(100 * differences[0].std(ddof=1) / math.sqrt(8))


def test_planted_components_come_back_and_fresh_gains_fall_where_predicted() -> None:
    """On experiments that the benchmark does not report."""
    ratios, coverage, inside = recovered(400, 32)
    for cause, ratio in ratios.items():
        assert abs(ratio - 1) < 0.2, cause
        assert 0.9 < coverage[cause] < 1, cause
    assert 0.75 <= inside <= 0.85


@given(
    st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=9),
    st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=9),
)
def test_no_variance_is_below_zero_and_no_interval_turned(a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    gains, again = np.array(a[:size]), np.array(b[:size])
    found = components(
        gains,
        {"none": again, "order": gains, "all": again},
        again[:, None] + np.zeros((size, 4)),
        STREAM,
    )
    assert [of.cause for of in found] == ["none", "order", "all", "selection", "items"]
    for of in found:
        assert of.variance >= 0
        assert 0 <= of.interval.low <= of.interval.high


def test_one_seed_and_replicates_of_other_seeds_are_refused() -> None:
    for gains, again in ((GAINS[:1], GAINS[:1]), (GAINS, GAINS[:3])):
        with pytest.raises(ValueError, match="two training seeds"):
            components(gains, {"order": again}, np.zeros((len(gains), 4)), STREAM)


def test_the_prediction_interval_is_students_for_one_more() -> None:
    found = prediction_interval(GAINS)
    half = stats.t.ppf(0.9, 3) * GAINS.std(ddof=1) * math.sqrt(1.25)
    assert (found.low, found.high) == pytest.approx((0.11 - half, 0.11 + half))


@given(st.floats(0.05, 6), st.floats(0.6, 0.95))
def test_the_seeds_of_a_claim_grow_with_the_spread_and_the_unit_has_no_say(
    deviation: float, power: float
) -> None:
    seeds = seeds_needed(deviation, 1.0, power)
    assert 2 <= seeds <= seeds_needed(1.1 * deviation, 1.0, power)
    assert seeds <= seeds_needed(deviation, 1.0, min(power + 0.04, 0.99))
    assert seeds_needed(2 * deviation, 2.0, power) == seeds


@pytest.mark.parametrize("deviation", [0.4, 1.0, 2.5])
def test_so_many_seeds_find_the_claim_in_80_of_100_studies_and_fewer_do_not(
    deviation: float,
) -> None:
    """By simulation of Student's test itself."""
    seeds, rng = seeds_needed(deviation, 1.0), np.random.default_rng(8)
    shares = []
    for count in (seeds, seeds - 1):
        drawn = rng.normal(1.0, deviation, (20_000, count))
        shares.append((stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean())
    assert shares[0] > 0.8 - 0.01
    assert shares[1] < 0.8 + 0.01


def test_without_spread_two_seeds_are_enough() -> None:
    assert seeds_needed(0.0, 0.01) == 2
