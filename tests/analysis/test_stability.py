"""Stability over sample sets: what must not move, what moves, and its summary by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.stability import (
    Spread,
    compute_spreads,
    measure_agreement,
)

INVARIANT = ("total_gain", "G_regression", "combined_correction")


def draw_partitions(number, problems=14, sets=4, seeds=2):
    """G of a source, its states under each sample set, and what seeds' models solve."""
    rng = np.random.default_rng(number)
    greedy, recovered = rng.random(problems) < 0.4, rng.random((sets, problems))
    states = np.where(greedy, "G", np.where(recovered < rng.random(problems), "S", "U"))
    return greedy, states, rng.random((seeds, problems)) < 0.6


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_gain_and_regression_are_invariant(number):
    greedy, states, passed = draw_partitions(number)
    spreads = compute_spreads(states, passed)
    for name in INVARIANT:
        assert spreads[name].range == 0
    change = Fraction(int(passed.sum()), passed.size) - Fraction(int(greedy.sum()), greedy.size)
    assert spreads["total_gain"].values == (change,) * 4
    assert spreads["S_flow"].range == spreads["U_flow"].range, "what leaves S goes to U"
    for s, u, both in zip(
        *(spreads[name].values for name in ("S_flow", "U_flow", "combined_correction")), strict=True
    ):
        assert s + u == both


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_agreement_averages_all_pairs(number, sets):
    greedy, states, _ = draw_partitions(number, sets=sets)
    agreement = measure_agreement(states)
    failed = np.flatnonzero(~greedy)
    if not len(failed):
        assert agreement is None
        return
    pairs = [(a, b) for i, a in enumerate(states) for b in states[:i]]
    of_pairs = [(set(np.flatnonzero(a == "S")), set(np.flatnonzero(b == "S"))) for a, b in pairs]
    overlaps = [Fraction(len(a & b), len(a | b)) if a | b else Fraction(1) for a, b in of_pairs]
    differing = sum(len(a ^ b) for a, b in of_pairs)
    assert agreement.failures == len(failed)
    assert agreement.jaccard == sum(overlaps) / len(pairs)
    assert agreement.same == 1 - Fraction(differing, len(pairs) * len(failed))
    unstable = [i for i in failed if len(set(states[:, i])) > 1]
    assert agreement.unstable == Fraction(len(unstable), len(failed))
    rng = np.random.default_rng(number)
    shuffled = states[rng.permutation(sets)][:, rng.permutation(len(greedy))]
    assert measure_agreement(shuffled) == agreement


def test_agreement_matches_hand_calculation():
    """Four failures, two partitions: S S U U and S U S U; the model corrects the first two."""
    states = np.array([[*"GSSUU"], [*"GSUSU"]])
    agreement = measure_agreement(states)
    assert (agreement.failures, agreement.unstable, agreement.same) == (
        4,
        Fraction(1, 2),
        Fraction(1, 2),
    )
    assert agreement.jaccard == Fraction(1, 3)
    spreads = compute_spreads(states, np.array([[False, True, True, False, False]]))
    assert spreads["S_flow"].values == (Fraction(2, 5), Fraction(1, 5))
    assert spreads["kappa_S"].values == (1, Fraction(1, 2))
    assert (spreads["kappa_U"].mean, spreads["kappa_U"].range) == (Fraction(1, 4), Fraction(1, 2))
    assert spreads["total_gain"].mean == Fraction(1, 5)
    assert spreads["G_regression"].mean == Fraction(1, 5)


def test_undefined_rate_has_no_mean_or_range():
    assert Spread((Fraction(1, 2), None)).mean is None
    assert Spread((Fraction(1, 2), None)).range is None
    assert measure_agreement(np.array([["G"], ["G"]])) is None
    none_recovered = measure_agreement(np.array([[*"GUU"], [*"GUU"]]))
    assert none_recovered.jaccard == 1


@pytest.mark.parametrize(
    ("states", "why"), [([[*"GSU"]], "two partitions"), ([[*"GSU"], [*"SSU"]], "differ in G")]
)
def test_rejects_partitions_of_different_sources(states, why):
    with pytest.raises(ValueError, match=why):
        measure_agreement(np.array(states))
