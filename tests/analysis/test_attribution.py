"""Scores of attributions against scipy, and against planted effects of training examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from gapft_harness.analysis.attribution import Agreement, HeldOut, agreement, slope
from gapft_harness.core.streams import Stream

Array = NDArray[np.float64]
STREAM = Stream(0, "test")


@dataclass(frozen=True)
class Planted:
    """Arms whose decisions come of planted effects of examples, and of noise.

    Attributes:
        included: shape (A, E).
        effects: shape (E, P).
        passed: shape (A, P).
    """

    included: Array
    effects: Array
    passed: NDArray[np.bool_]

    def folds(self, scores: Array, included: Array | None = None) -> list[HeldOut]:
        given = self.included if included is None else included
        predicted, observed = given @ scores, self.passed.astype(float)
        return [HeldOut(predicted[i::2], observed[i::2]) for i in (0, 1)]


def planted(seed: int, arms: int = 80, examples: int = 40, problems: int = 60) -> Planted:
    rng = np.random.default_rng(seed)
    shares = rng.permutation(np.linspace(0, 1, arms))
    chance = np.where(np.arange(examples) < examples // 2, shares[:, None], 1 - shares[:, None])
    included = (rng.random((arms, examples)) < chance).astype(float)
    effects = rng.normal(size=(examples, problems))
    effects[: examples // 2] += 0.3  # what knows the share alone can know
    outcome = included @ effects
    noise = rng.normal(size=outcome.shape) * outcome.std(axis=0)
    return Planted(included, effects, outcome + noise > np.median(outcome, axis=0))


def scored(of: Planted, scores: Array, included: Array | None = None) -> Agreement:
    found = agreement(of.folds(scores, included), replicates=400, stream=STREAM)
    assert found is not None
    return found


def test_the_score_is_the_mean_of_scipys_correlations() -> None:
    of = planted(0)
    of.passed[::2, 3] = True  # of one half no correlation is defined
    expected = []
    for fold in of.folds(of.effects):
        columns = zip(fold.predicted.T, fold.observed.T, strict=True)
        found = [spearmanr(p, o).statistic for p, o in columns if np.ptp(o)]
        expected.append(np.mean(found))
    assert len(found) == 60
    assert scored(of, of.effects).score == pytest.approx(np.mean(expected), abs=1e-12)


def test_planted_effects_are_found_beside_those_of_states_alone_and_of_nothing() -> None:
    of = planted(1)
    states = np.repeat((np.arange(40) < 20)[:, None], 60, axis=1).astype(float)
    nothing = np.random.default_rng(2).normal(size=of.effects.shape)
    truth, share, none = (scored(of, scores) for scores in (of.effects, states, nothing))
    assert truth.interval.low > share.interval.high > share.interval.low > 0
    assert share.interval.low > none.score
    assert none.permuted.low < none.score < none.permuted.high
    assert none.interval.low < 0 < none.interval.high
    assert truth.permuted.high < truth.interval.low


def test_permuted_inclusion_gives_none() -> None:
    """Its interval holds 0 as often as 95% says, though the effects are the planted ones."""
    holds = []
    for seed in range(40):
        of = planted(seed)
        order = np.random.default_rng(seed).permutation(len(of.included))
        found = scored(of, of.effects, of.included[order])
        holds.append(found.interval.low <= 0 <= found.interval.high)
        assert found.permuted.low < 0 < found.permuted.high
    assert sum(holds) >= 35


def test_the_interval_holds_the_score_of_other_arms() -> None:
    """Of many arms the score is known; 80 of them hold it about as often as 95% says."""
    whole = planted(3, arms=2000, problems=20)
    right = scored(whole, whole.effects).score
    holds = []
    for start in range(0, 2000, 80):
        part = slice(start, start + 80)
        of = Planted(whole.included[part], whole.effects, whole.passed[part])
        ends = scored(of, whole.effects).interval
        holds.append(ends.low <= right <= ends.high)
    assert sum(holds) >= 22


def test_a_prediction_that_ranks_no_arm_scores_nothing() -> None:
    of = planted(4)
    found = scored(of, np.zeros_like(of.effects))
    assert (found.score, found.interval.low, found.interval.high) == (0, 0, 0)


def test_arms_that_decide_alike_have_no_score() -> None:
    of = planted(5)
    of.passed[1::2] = False
    assert agreement(of.folds(of.effects), replicates=40, stream=STREAM) is None


@pytest.mark.parametrize("rise", [0.0, 0.4])
def test_the_slope_is_least_squares_and_its_interval_holds_the_planted_one(rise: float) -> None:
    holds = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        share = rng.random(60)
        passed = rng.random((60, 50)) < 0.3 + rise * share[:, None]
        found = slope(share, passed, replicates=400, stream=STREAM)
        assert found.rise == pytest.approx(np.polyfit(share, passed.mean(axis=1), 1)[0])
        holds.append(found.interval.low <= rise <= found.interval.high)
    assert sum(holds) >= 17


def test_predictions_that_differ_by_rounding_alone_are_ties() -> None:
    of = planted(6)
    counts = of.included.sum(axis=1, keepdims=True) * np.ones(60)
    rounded = counts * (1 + 1e-14 * np.random.default_rng(0).normal(size=counts.shape))
    folds = [
        [HeldOut(given[i::2], of.passed[i::2].astype(float)) for i in (0, 1)]
        for given in (counts, rounded)
    ]
    exact, other = (agreement(found, replicates=40, stream=STREAM) for found in folds)
    assert exact == other
