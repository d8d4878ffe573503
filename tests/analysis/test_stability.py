"""Stability over sample sets: what must not move, what moves, and its summary by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gapft_harness.analysis.stability import (
    Spread,
    compute_spreads,
    measure_agreement,
)


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
