"""Stability over sample sets: what must not move, what moves, and its summary by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
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
