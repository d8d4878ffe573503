"""The identity, exactly, on any audit; and against the paper's published tables."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.decomposition import (
    STABLE_ITEMS,
    Decomposition,
    Terms,
    decompose,
    pool,
    unstable_states,
)

AUDITS = st.lists(st.tuples(st.sampled_from("GSU"), st.booleans()), min_size=1, max_size=60)


def arrays(audit):
    return np.array([state for state, _ in audit]), np.array([passed for _, passed in audit])


@given(AUDITS)
def test_the_terms_sum_to_the_change_of_pass_at_1_exactly(audit):
    states, passed = arrays(audit)
    found = decompose(states, passed)
    before = Fraction(int((states == "G").sum()), len(audit))
    after = Fraction(int(passed.sum()), len(audit))
    assert found.terms.total == after - before
    assert found.pass_at_1 == after
    weighted = [
        (found.n_s, found.kappa_s, found.terms.s),
        (found.n_u, found.kappa_u, found.terms.u),
        (found.n_g, found.rho_g, -found.terms.g),
    ]
    for size, rate, term in weighted:
        if rate is None:
            assert (size, term) == (0, 0)
        else:
            assert Fraction(size, len(audit)) * rate == term


@given(st.data())
def test_a_contrast_is_the_sum_of_its_term_differences(data):
    states, passed = arrays(data.draw(AUDITS))
    other = np.array(data.draw(st.lists(st.booleans(), min_size=len(states), max_size=len(states))))
    a, b = decompose(states, passed), decompose(states, other)
    assert (a.terms - b.terms).total == a.pass_at_1 - b.pass_at_1


@given(st.data())
def test_order_changes_nothing(data):
    audit = data.draw(AUDITS)
    shuffled = data.draw(st.permutations(audit))
    assert decompose(*arrays(audit)) == decompose(*arrays(shuffled))


@given(st.data())
def test_pooling_seeds_gives_the_mean_of_rates_and_terms(data):
    states, first = arrays(data.draw(AUDITS))
    second = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(states), max_size=len(states)))
    )
    parts = [decompose(states, first), decompose(states, second)]
    pooled = pool(parts)
    assert pooled.pass_at_1 == (parts[0].pass_at_1 + parts[1].pass_at_1) / 2
    assert pooled.terms.s == (parts[0].terms.s + parts[1].terms.s) / 2
    if parts[0].kappa_s is not None and parts[1].kappa_s is not None:
        assert pooled.kappa_s == (parts[0].kappa_s + parts[1].kappa_s) / 2


def test_an_empty_state_has_no_rate_and_a_term_of_zero():
    found = decompose(np.array(["G", "G", "U"]), np.array([True, False, True]))
    assert found.kappa_s is None
    assert found.terms.s == 0
    assert (found.kappa_u, found.rho_g) == (1, Fraction(1, 2))


@pytest.mark.parametrize(
    ("states", "passed"),
    [(["G"], [True, False]), ([], []), (["X"], [True])],
)
def test_what_is_no_audit_is_refused(states, passed):
    with pytest.raises(ValueError, match=r"expected one state|must be G, S or U"):
        decompose(np.array(states, dtype=str), np.array(passed, dtype=bool))


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="more changed problems"):
        Decomposition(3, 2, 1, regressed_g=0, corrected_s=3, corrected_u=0)


def test_rates_on_few_problems_are_named():
    assert unstable_states(STABLE_ITEMS, STABLE_ITEMS - 1, 0) == ("S", "U")


# The paper's appendix table of the scope matrix: (G, S, U), κ_S, κ_U, ρ_G, net gain, in percent.
SCOPE = [
    ((770, 306, 496), 47.17, 20.50, 8.23, 11.62),
    ((770, 416, 386), 50.72, 16.93, 6.88, 14.21),
    ((1050, 28, 494), 51.19, 8.37, 2.79, 1.68),
    ((1050, 37, 485), 54.95, 7.56, 2.73, 1.80),
    ((277, 96, 127), 46.88, 38.58, 6.38, 15.27),
    ((277, 130, 93), 55.64, 38.71, 8.66, 16.87),
    ((361, 7, 132), 71.43, 4.04, 1.20, 1.20),
    ((361, 11, 128), 57.58, 3.65, 1.11, 1.40),
]
# The paper's MATH table; its states follow from its rates and are not printed there.
MATH_STATES = (377, 104, 119)
MATH = [
    (41.35, 3.08, 11.49, 0.56),
    (40.38, 4.48, 7.34, 3.28),
    (33.65, 5.60, 9.02, 1.28),
    (41.35, 5.04, 7.69, 3.33),
    (34.62, 2.52, 7.16, 2.00),
    (40.06, 3.92, 7.60, 2.94),
    (40.38, 2.24, 8.13, 2.33),
]
PUBLISHED = [*SCOPE, *((MATH_STATES, *row) for row in MATH)]


@pytest.mark.parametrize(("sizes", "kappa_s", "kappa_u", "rho_g", "net"), PUBLISHED)
def test_published_rows_agree_with_the_identity(sizes, kappa_s, kappa_u, rho_g, net):
    """Rates are means over three seeds, so each is a whole count of 3 times its state."""
    n_g, n_s, n_u = (3 * size for size in sizes)
    counts = [round(n * rate / 100) for n, rate in ((n_g, rho_g), (n_s, kappa_s), (n_u, kappa_u))]
    found = Decomposition(n_g, n_s, n_u, *counts)
    for printed, rate in ((rho_g, found.rho_g), (kappa_s, found.kappa_s), (kappa_u, found.kappa_u)):
        assert 100 * float(rate) == pytest.approx(printed, abs=0.005001)
    assert 100 * float(found.terms.total) == pytest.approx(net, abs=0.005001)


# The paper's appendix decomposition table (term differences from uniform: S, U, G, in points)
# beside its Table 1 (Pass@1 of the condition and of uniform).
DIFFERENCES = [
    ("Llama LogiQA replay", 55.84, 60.33, (-4.22, -2.88, 2.61)),
    ("Llama LogiQA gapft", 62.59, 60.33, (2.17, 3.24, -3.15)),
    ("Llama LogiQA all", 65.89, 60.33, (2.56, 2.24, 0.76)),
    ("Llama ReClor replay", 61.27, 69.13, (-5.73, -3.60, 1.47)),
    ("Llama ReClor gapft", 70.67, 69.13, (3.53, 1.80, -3.80)),
    ("Qwen LogiQA gapft", 68.81, 68.20, (0.24, 1.34, -0.98)),
    ("Mistral LogiQA gapft", 51.87, 49.57, (0.68, 1.61, 0.00)),
    ("Mistral ReClor all", 57.20, 52.53, (0.60, 3.47, 0.60)),
]
STATES_LLAMA_LOGIQA = (688, 364, 315)


@pytest.mark.parametrize(("row", "a", "b", "differences"), DIFFERENCES)
def test_published_term_differences_sum_to_table_1(row, a, b, differences):
    total = Terms(*map(Fraction, differences)).total
    assert float(total) == pytest.approx(a - b, abs=0.025), row


def test_the_published_llama_rates_give_its_published_term_differences():
    """Rates in the appendix are printed to 0.1 points, 688 + 364 + 315 = 1,367 audit problems.

    G is Table 1's source accuracy (50.33%), S the table's p_S of 26.6%.
    """

    def published(kappa_s, kappa_u, rho_g):
        n_g, n_s, n_u = (3 * size for size in STATES_LLAMA_LOGIQA)
        return Decomposition(
            n_g,
            n_s,
            n_u,
            regressed_g=round(n_g * rho_g / 100),
            corrected_s=round(n_s * kappa_s / 100),
            corrected_u=round(n_u * kappa_u / 100),
        )

    gapft, uniform = published(54.7, 31.0, 18.8), published(46.5, 16.9, 12.5)
    assert 100 * float(gapft.pass_at_1) == pytest.approx(62.59, abs=0.1)
    assert 100 * float(uniform.pass_at_1) == pytest.approx(60.33, abs=0.1)
    difference = gapft.terms - uniform.terms
    for found, printed in zip(
        (difference.s, difference.u, difference.g), (2.17, 3.24, -3.15), strict=True
    ):
        assert 100 * float(found) == pytest.approx(printed, abs=0.06)
