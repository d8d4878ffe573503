"""Stability over sample sets: what must not move, what moves, and its summary by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.stability import compute_quantities, measure_agreement, summarize

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
    values = compute_quantities(states, passed)
    ranges = {name: summarize(own)[1] for name, own in values.items()}
    for name in INVARIANT:
        assert ranges[name] == 0
    change = Fraction(int(passed.sum()), passed.size) - Fraction(int(greedy.sum()), greedy.size)
    assert values["total_gain"] == (change,) * 4
    assert ranges["S_flow"] == ranges["U_flow"], "what leaves S goes to U"
    for s, u, both in zip(
        *(values[name] for name in ("S_flow", "U_flow", "combined_correction")), strict=True
    ):
        assert s + u == both


def test_agreement_matches_hand_calculation():
    """Four failures, two partitions: S S U U and S U S U; the model corrects the first two."""
    states = np.array([[*"GSSUU"], [*"GSUSU"]])
    agreement = [*measure_agreement(states).values()]
    assert agreement == [4, Fraction(1, 2), Fraction(1, 2), Fraction(1, 3)]
    values = compute_quantities(states, np.array([[False, True, True, False, False]]))
    assert values["S_flow"] == (Fraction(2, 5), Fraction(1, 5))
    assert values["kappa_S"] == (1, Fraction(1, 2))
    assert summarize(values["kappa_U"]) == (Fraction(1, 4), Fraction(1, 2))
    assert summarize(values["total_gain"])[0] == Fraction(1, 5)
    assert summarize(values["G_regression"])[0] == Fraction(1, 5)


def test_undefined_rate_has_no_mean_or_range():
    assert summarize((Fraction(1, 2), None)) == (None, None)
    assert [*measure_agreement(np.array([["G"], ["G"]])).values()] == [0, None, None, None]
    none_recovered = measure_agreement(np.array([[*"GUU"], [*"GUU"]]))
    assert none_recovered["S_jaccard"] == 1
