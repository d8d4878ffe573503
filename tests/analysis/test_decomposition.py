"""The exact identity on any audit; test_published.py checks the paper's tables."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.decomposition import (
    STABLE_ITEMS,
    Decomposition,
    decompose,
    find_unstable_states,
    partition,
    pool_counts,
)
from gapft_harness.core.records import classify_state

AUDITS = st.lists(st.tuples(st.sampled_from("GSU"), st.booleans()), min_size=1, max_size=60)


def split_audit(audit):
    return np.array([state for state, _ in audit]), np.array([passed for _, passed in audit])


@given(AUDITS)
def test_terms_sum_to_pass_at_1_change(audit):
    states, passed = split_audit(audit)
    result = decompose(states, passed)
    before = Fraction(int((states == "G").sum()), len(audit))
    after = Fraction(int(passed.sum()), len(audit))
    assert result.terms.total == after - before
    assert result.pass_at_1 == after
    weighted = [
        (result.n_s, result.kappa_s, result.terms.s),
        (result.n_u, result.kappa_u, result.terms.u),
        (result.n_g, result.rho_g, -result.terms.g),
    ]
    for size, rate, term in weighted:
        if rate is None:
            assert (size, term) == (0, 0)
        else:
            assert Fraction(size, len(audit)) * rate == term


@given(st.data())
def test_contrast_is_sum_of_term_differences(data):
    states, passed = split_audit(data.draw(AUDITS))
    other = np.array(data.draw(st.lists(st.booleans(), min_size=len(states), max_size=len(states))))
    a, b = decompose(states, passed), decompose(states, other)
    assert (a.terms - b.terms).total == a.pass_at_1 - b.pass_at_1


@given(st.data())
def test_ignores_order(data):
    audit = data.draw(AUDITS)
    shuffled = data.draw(st.permutations(audit))
    assert decompose(*split_audit(audit)) == decompose(*split_audit(shuffled))


@given(st.data())
def test_pooling_seeds_gives_the_mean_of_rates_and_terms(data):
    states, first = split_audit(data.draw(AUDITS))
    second = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(states), max_size=len(states)))
    )
    parts = [decompose(states, first), decompose(states, second)]
    pooled = pool_counts(parts)
    assert pooled.pass_at_1 == (parts[0].pass_at_1 + parts[1].pass_at_1) / 2
    assert pooled.terms.s == (parts[0].terms.s + parts[1].terms.s) / 2
    if parts[0].kappa_s is not None and parts[1].kappa_s is not None:
        assert pooled.kappa_s == (parts[0].kappa_s + parts[1].kappa_s) / 2


def test_empty_state_has_no_rate_and_zero_term():
    result = decompose(np.array(["G", "G", "U"]), np.array([True, False, True]))
    assert result.kappa_s is None
    assert result.terms.s == 0
    assert (result.kappa_u, result.rho_g) == (1, Fraction(1, 2))


@pytest.mark.parametrize(
    ("states", "passed"),
    [(["G"], [True, False]), ([], []), (["X"], [True])],
)
def test_rejects_invalid_audits(states, passed):
    with pytest.raises(ValueError, match=r"expected one state|must be G, S or U"):
        decompose(np.array(states, dtype=str), np.array(passed, dtype=bool))


def test_rejects_impossible_counts():
    with pytest.raises(ValueError, match="more changed problems"):
        Decomposition(3, 2, 1, regressed_g=0, corrected_s=3, corrected_u=0)


def test_lists_states_with_few_problems():
    assert find_unstable_states(STABLE_ITEMS, STABLE_ITEMS - 1, 0) == ("S", "U")


@given(st.data())
def test_more_samples_only_move_u_to_s(data):
    problems, samples = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 5))
    bits = st.lists(st.booleans(), min_size=problems * samples, max_size=problems * samples)
    passed = np.array(data.draw(bits)).reshape(problems, samples)
    greedy = np.array(
        data.draw(st.lists(st.booleans(), min_size=problems, max_size=problems)), dtype=bool
    )
    before = np.where(greedy, "G", "U")  # no sample
    for k in range(1, samples + 1):
        states = partition(greedy, passed[:, :k])
        expected = [
            "G" if g else "S" if any(row[:k]) else "U"
            for g, row in zip(greedy, passed, strict=True)
        ]
        assert states.tolist() == expected
        moved = states != before
        assert set(before[moved]) <= {"U"}
        assert set(states[moved]) <= {"S"}
        before = states


@given(st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), min_size=3, max_size=3))))
def test_partition_classifies_each_problem(problems):
    passed = np.array([passed for passed, _ in problems], dtype=bool)
    drawn = np.array([samples for _, samples in problems], dtype=bool).reshape(-1, 3)
    expected = [classify_state(*outcomes) for outcomes in problems]
    assert partition(passed, drawn).tolist() == expected


@pytest.mark.parametrize("shape", [(2, 1), (3,), (1, 3, 1)])
def test_rejects_samples_of_different_problems(shape):
    with pytest.raises(ValueError, match="shapes"):
        partition(np.array([True, False, False]), np.zeros(shape, dtype=bool))
