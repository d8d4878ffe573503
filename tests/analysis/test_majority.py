"""maj@k against enumeration of all choices, and its laws."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.analysis.majority import MAX_SAMPLES, majority_at_k
from gapft_harness.analysis.pass_at_k import pass_at_k
from gapft_harness.analysis.redistribution import NO_ANSWER


@st.composite
def draw_problem(draw, abstentions=True, consistent=False, largest=8):
    """Draw the answers and the verdicts of one problem's samples."""
    samples = draw(st.integers(1, largest))
    codes = st.integers(NO_ANSWER if abstentions else 0, 4)
    answers = draw(st.lists(codes, min_size=samples, max_size=samples))
    if consistent:
        gold = draw(st.integers(0, 4))
        return answers, [answer == gold for answer in answers]
    return answers, draw(st.lists(st.booleans(), min_size=samples, max_size=samples))


def compute(answers, passed):
    (row,) = majority_at_k(np.array([answers]), np.array([passed]))
    return row


def enumerate_votes(answers, passed, k):
    """Average the outcome of the vote over all choices of k samples."""
    total, responses = Fraction(0), list(zip(answers, passed, strict=True))
    choices = list(combinations(responses, k))
    for choice in choices:
        votes = Counter(answer for answer, _ in choice if answer != NO_ANSWER)
        leaders = [answer for answer, count in votes.items() if count == max(votes.values())]
        for leader in leaders:
            outcomes = [passes for answer, passes in choice if answer == leader]
            total += Fraction(sum(outcomes), len(outcomes) * len(leaders))
    return total / len(choices)


@given(draw_problem())
@settings(max_examples=300)
def test_matches_enumerated_votes(problem):
    answers, passed = problem
    expected = [float(enumerate_votes(answers, passed, k)) for k in range(1, len(answers) + 1)]
    assert compute(answers, passed) == pytest.approx(expected, abs=1e-12)


@given(draw_problem(consistent=True), st.randoms())
def test_depends_on_numbers_of_votes_only(problem, random):
    answers, passed = problem
    order = list(range(len(answers)))
    random.shuffle(order)
    renamed = {code: NO_ANSWER if code == NO_ANSWER else 10 - code for code in {*answers}}
    row = compute([renamed[answers[i]] for i in order], [passed[i] for i in order])
    assert row == pytest.approx(compute(answers, passed), abs=1e-12)


@given(draw_problem(abstentions=False))
def test_two_votes_decide_as_one(problem):
    """Two different votes tie, so the result is drawn; with abstentions this does not hold."""
    answers, passed = problem
    row = compute(answers, passed)
    assert row[0] == pytest.approx(sum(passed) / len(passed))
    assert row[1:2] == pytest.approx(row[:1][: len(row) - 1])


@given(draw_problem(consistent=True))
def test_never_exceeds_pass_at_k(problem):
    answers, passed = problem
    row, samples = compute(answers, passed), len(answers)
    for k in range(1, samples + 1):
        reached = pass_at_k(np.array([sum(passed)]), samples, k)[0]
        assert 0 <= row[k - 1] <= reached + 1e-12


@given(st.integers(1, 200), st.data())
@settings(max_examples=30, deadline=None)
def test_stays_precise_with_hundreds_of_samples(samples, data):
    """If every answer passes, the result is right in every choice with at least one vote."""
    silent = data.draw(st.integers(0, samples))
    answers = [NO_ANSWER] * silent + data.draw(
        st.lists(st.integers(0, 6), min_size=samples - silent, max_size=samples - silent)
    )
    passed = [answer != NO_ANSWER for answer in answers]
    expected = [
        float(1 - Fraction(comb(silent, k), comb(samples, k))) for k in range(1, samples + 1)
    ]
    assert compute(answers, passed) == pytest.approx(expected, rel=1e-10)


def test_full_vote_elects_the_most_frequent_answer():
    votes = np.array([[0, 0, 1, 2], [0, 1, 1, NO_ANSWER], [0, 0, 1, 1], [NO_ANSWER] * 4])
    assert majority_at_k(votes, votes == 0)[:, -1].tolist() == [1, 0, 0.5, 0]


def test_largest_number_of_samples_does_not_overflow():
    answers = np.full(MAX_SAMPLES, NO_ANSWER)
    answers[:3], answers[3:6] = 0, 1
    row = compute(answers, answers == 0)
    assert row[0] == pytest.approx(3 / MAX_SAMPLES)
    assert row[-1] == pytest.approx(0.5), "a tie"
    assert np.isfinite(row).all()


@pytest.mark.parametrize(
    ("shape", "verdicts"), [((2, 3), (2, 4)), ((3,), (3,)), ((1, 0), (1, 0)), ((1, 1001),) * 2]
)
def test_rejects_impossible_shapes(shape, verdicts):
    with pytest.raises(ValueError, match="expected"):
        majority_at_k(np.zeros(shape, dtype=int), np.zeros(verdicts, dtype=bool))
