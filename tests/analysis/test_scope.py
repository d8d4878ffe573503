"""The scope matrix: nested budgets, the identity at each, and a net gain that no K changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.partition.scope import scope_rows


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_each_row_keeps_the_identity_and_all_have_one_net_gain(number):
    rng = np.random.default_rng(number)
    greedy, passed = rng.random(20) < 0.5, rng.random((3, 20)) < 0.6
    samples = rng.random((20, 8)) < 0.15
    rows = scope_rows(greedy, samples, passed, [1, 4, 8])
    gain = Fraction(int(passed.sum()), 60) - Fraction(int(greedy.sum()), 20)
    sizes = [row.sizes for row in rows]
    assert {row.net_gain for row in rows} == {gain}
    assert {g for g, _, _ in sizes} == {int(greedy.sum())}
    assert [s for _, s, _ in sizes] == sorted(s for _, s, _ in sizes), "S grows with K"
    for row in rows:
        g, s, u = row.sizes
        assert g + s + u == 20
        mean = row.mean
        assert (mean.n_g, mean.n_s, mean.n_u) == (3 * g, 3 * s, 3 * u)
        gained = row.p_s * (mean.kappa_s or 0) + Fraction(u, 20) * (mean.kappa_u or 0)
        assert gained - Fraction(g, 20) * (mean.rho_g or 0) == gain
    assert len({row.mean.rho_g for row in rows}) == 1


def test_worked_by_hand():
    """Of 40 problems 5 are solved; search recovers 5 at K = 1 and all 35 at K = 2."""
    greedy = np.arange(40) < 5
    samples = np.stack([(np.arange(40) >= 5) & (np.arange(40) < 10), np.arange(40) >= 5], axis=1)
    first, second = scope_rows(greedy, samples, np.array([np.arange(40) < 8]), [1, 2])
    assert (first.k, first.sizes, first.p_s) == (1, (5, 5, 30), Fraction(1, 8))
    assert (first.mean.kappa_s, first.mean.kappa_u) == (Fraction(3, 5), 0)
    assert (second.sizes, second.mean.kappa_s, second.mean.kappa_u) == (
        (5, 35, 0),
        Fraction(3, 35),
        None,
    )
    assert (first.unstable, second.unstable) == (("G", "S"), ("G", "U"))


@pytest.mark.parametrize("budgets", [[0], [1, 3]])
def test_a_k_beyond_the_samples_is_refused(budgets):
    with pytest.raises(ValueError, match=r"within 1\.\.2 \(the samples drawn\)"):
        scope_rows(np.zeros(3, bool), np.zeros((3, 2), bool), np.zeros((1, 3), bool), budgets)
