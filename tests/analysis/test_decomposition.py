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


@given(st.data())
def test_partition_classifies_each_problem(data):
    problems, repeats, samples = (data.draw(st.integers(1, 5)) for _ in range(3))
    solved = data.draw(st.integers(1, 100)) / 100
    outcomes = [
        np.array(data.draw(st.lists(st.booleans(), min_size=problems * n, max_size=problems * n)))
        for n in (repeats, samples)
    ]
    passed, drawn = (outcome.reshape(problems, -1) for outcome in outcomes)
    assert partition(passed, drawn, solved).tolist() == [
        classify_state(of_problem, row, solved)
        for of_problem, row in zip(passed.tolist(), drawn.tolist(), strict=True)
    ]


@pytest.mark.parametrize("shape", [(2, 1), (3,), (1, 3, 1)])
def test_rejects_samples_of_different_problems(shape):
    with pytest.raises(ValueError, match="shapes"):
        partition(np.array([True, False, False]), np.zeros(shape, dtype=bool))


#: Audits with r deployment decodes of each problem by the source and the trained model.
@st.composite
def draw_repeated_audits(draw, repeats=None):
    """Draw (source decodes, samples, trained decodes of two seeds, solved share)."""
    problems, samples = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    r = repeats or draw(st.integers(1, 6))

    def draw_outcomes(columns):
        size = problems * columns
        bits = draw(st.lists(st.booleans(), min_size=size, max_size=size))
        return np.array(bits).reshape(problems, columns)

    share = draw(st.fractions(0, 1, max_denominator=10).filter(bool))
    decodes = [draw_outcomes(r) for _ in range(3)]
    return decodes[0], draw_outcomes(samples), decodes[1:], float(share)


@given(draw_repeated_audits())
def test_repeats_decompose_the_change_of_the_mean_success(audit):
    source, samples, (after, _), share = audit
    states = partition(source, samples, share)
    success = [[Fraction(int(row.sum()), row.size) for row in rows] for rows in (source, after)]
    result = decompose(states, after, source)
    n = len(states)
    assert result.pass_at_1 == sum(success[1]) / n
    assert result.terms.total == (sum(success[1]) - sum(success[0])) / n
    total = Fraction(0)
    for state, rate, sign in (
        ("S", result.kappa_s, 1), ("U", result.kappa_u, 1), ("G", result.rho_g, -1),
    ):  # fmt: skip
        changes = [
            sign * (post - before)
            for before, post, own in zip(*success, states.tolist(), strict=True)
            if own == state
        ]
        assert rate == (sum(changes) / len(changes) if changes else None)
        if rate is not None:
            assert abs(rate) <= 1
            total += sign * Fraction(len(changes), n) * rate
    assert total == result.terms.total


@given(draw_repeated_audits(repeats=1))
def test_one_repeat_is_the_single_decode(audit):
    source, samples, (after, _), share = audit
    states = partition(source[:, 0], samples)
    assert (partition(source, samples, share) == states).all()
    result = decompose(states, after, source)
    assert result == decompose(states, after[:, 0])
    assert result.regressed_g == int(((states == "G") & ~after[:, 0]).sum())
    assert result.corrected_s == int(((states == "S") & after[:, 0]).sum())
    assert result.corrected_u == int(((states == "U") & after[:, 0]).sum())
    assert min(result.regressed_g, result.corrected_s, result.corrected_u) >= 0


@given(draw_repeated_audits(), st.randoms(use_true_random=False))
def test_order_of_problems_and_of_repeats_does_not_matter(audit, random):
    source, samples, (after, _), share = audit
    order = random.sample(range(len(source)), len(source))

    def shuffle_repeats(decodes):
        return np.array([random.sample(row.tolist(), len(row)) for row in decodes[order]])

    states = partition(source, samples, share)
    moved_source, moved = shuffle_repeats(source), shuffle_repeats(after)
    moved_states = partition(moved_source, samples[order], share)
    assert (moved_states == states[order]).all()
    assert decompose(moved_states, moved, moved_source) == decompose(states, after, source)


@given(draw_repeated_audits())
def test_pooled_seeds_of_repeats_have_mean_rates_and_terms(audit):
    source, samples, seeds, share = audit
    states = partition(source, samples, share)
    parts = [decompose(states, after, source) for after in seeds]
    pooled = pool_counts(parts)
    assert pooled.pass_at_1 == (parts[0].pass_at_1 + parts[1].pass_at_1) / 2
    assert pooled.terms.total == (parts[0].terms.total + parts[1].terms.total) / 2
    for name in ("kappa_s", "kappa_u", "rho_g"):
        rates = [getattr(part, name) for part in parts]
        assert getattr(pooled, name) == (None if None in rates else sum(rates) / 2)


def test_repeats_may_lose_on_failures_and_gain_on_solved_problems():
    """One problem of each state, r = 4: G passes 2 → 3, S 1 → 0, U 1 → 1."""
    source = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=bool)
    after = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=bool)
    states = partition(source, np.array([[0], [1], [0]], dtype=bool), 0.5)
    assert states.tolist() == ["G", "S", "U"]
    result = decompose(states, after, source)
    assert (result.rho_g, result.kappa_s, result.kappa_u) == (
        Fraction(-1, 4), Fraction(-1, 4), 0,
    )  # fmt: skip
    assert (result.pass_at_1, result.terms.total) == (Fraction(1, 3), 0)


def test_repeats_need_the_decodes_of_the_source():
    states, after = np.array(["G", "S"]), np.ones((2, 3), dtype=bool)
    with pytest.raises(ValueError, match="expected one state"):
        decompose(states, after)
    with pytest.raises(ValueError, match="shapes"):
        decompose(states, after, after[:, :2])
    with pytest.raises(ValueError, match="source's passes"):
        Decomposition(1, 1, 0, 0, 0, 0, repeats=3)
    parts = [decompose(states, after, after), decompose(states, after[:, 0])]
    with pytest.raises(ValueError, match="same number of repeats"):
        pool_counts(parts)
