"""The scope matrix: the identity at each K, and a net gain of fixed models that no K changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.stability import compute_scope_row


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_rows_satisfy_identity_with_equal_net_gain(number):
    rng = np.random.default_rng(number)
    greedy, passed = rng.random(20) < 0.5, rng.random((3, 20)) < 0.6
    first = rng.integers(12, size=20)  # the sample that solves each problem
    rows = [
        compute_scope_row(k, np.where(greedy, "G", np.where(first < k, "S", "U")), passed)
        for k in (1, 4, 8)
    ]
    gain = Fraction(int(passed.sum()), 60) - Fraction(int(greedy.sum()), 20)
    sizes = [row.sizes for row in rows]
    assert {row.net_gain for row in rows} == {gain}
    assert {g for g, _, _ in sizes} == {int(greedy.sum())}
    for row in rows:
        g, s, u = row.sizes
        assert g + s + u == 20
        mean = row.mean
        assert (mean.n_g, mean.n_s, mean.n_u) == (3 * g, 3 * s, 3 * u)
        gained = row.p_s * (mean.kappa_s or 0) + Fraction(u, 20) * (mean.kappa_u or 0)
        assert gained - Fraction(g, 20) * (mean.rho_g or 0) == gain
    assert len({row.mean.rho_g for row in rows}) == 1


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
