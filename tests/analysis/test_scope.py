"""The scope matrix: the identity at each K, and a net gain of fixed models that no K changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gapft_harness.analysis.stability import compute_scope_row


def test_rows_match_hand_calculation():
    """Of 40 problems 5 are solved; search recovers 5 at K = 1 and all 35 at K = 2."""
    passed = np.array([np.arange(40) < 8])
    states = [np.repeat([*"GSU"], sizes) for sizes in ((5, 5, 30), (5, 35, 0))]
    first, second = (
        compute_scope_row(k, row_states, passed) for k, row_states in enumerate(states, start=1)
    )
    assert (first.k, first.sizes, first.p_s) == (1, (5, 5, 30), Fraction(1, 8))
    assert (first.mean.kappa_s, first.mean.kappa_u) == (Fraction(3, 5), 0)
    assert (second.sizes, second.mean.kappa_s, second.mean.kappa_u) == (
        (5, 35, 0),
        Fraction(3, 35),
        None,
    )
    assert (first.unstable, second.unstable) == (("G", "S"), ("G", "U"))
