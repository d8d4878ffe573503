"""maj@K against draws of the tied answers, and its laws."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.majority import compute_majority
from gapft_harness.analysis.redistribution import NO_ANSWER


@st.composite
def draw_problem(draw, consistent=False):
    """Draw the answers and the verdicts of one problem's samples."""
    samples = draw(st.integers(1, 8))
    codes = st.integers(NO_ANSWER, 4)
    answers = draw(st.lists(codes, min_size=samples, max_size=samples))
    if consistent:
        gold = draw(st.integers(0, 4))
        return answers, [answer == gold for answer in answers]
    return answers, draw(st.lists(st.booleans(), min_size=samples, max_size=samples))


def compute(answers, passed):
    (accuracy,) = compute_majority(np.array([answers]), np.array([passed]))
    return accuracy


@given(draw_problem())
def test_mean_over_tied_answers_and_their_responses(problem):
    answers, passed = problem
    votes = Counter(answer for answer in answers if answer != NO_ANSWER)
    leaders = [answer for answer, count in votes.items() if count == max(votes.values())]
    drawn = [
        (leader, passes)
        for leader in leaders
        for answer, passes in zip(answers, passed, strict=True)
        if answer == leader
    ]
    expected = Fraction(sum(passes for _, passes in drawn), len(drawn) or 1)
    assert compute(answers, passed) == pytest.approx(float(expected), abs=1e-12)


@given(draw_problem(consistent=True), st.randoms())
def test_depends_on_numbers_of_votes_only(problem, random):
    answers, passed = problem
    order = list(range(len(answers)))
    random.shuffle(order)
    renamed = {code: NO_ANSWER if code == NO_ANSWER else 10 - code for code in {*answers}}
    accuracy = compute([renamed[answers[i]] for i in order], [passed[i] for i in order])
    assert accuracy == pytest.approx(compute(answers, passed), abs=1e-12)


@given(draw_problem(consistent=True))
def test_never_exceeds_pass_at_k(problem):
    answers, passed = problem
    assert 0 <= compute(answers, passed) <= any(passed)


def test_elects_the_most_frequent_answer():
    votes = np.array([[0, 0, 1, 2], [0, 1, 1, NO_ANSWER], [0, 0, 1, 1], [NO_ANSWER] * 4])
    assert compute_majority(votes, votes == 0).tolist() == [1, 0, 0.5, 0]
