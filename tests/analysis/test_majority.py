"""maj@K against draws of the tied answers."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.majority import compute_majority
from gapft_harness.analysis.redistribution import NO_ANSWER


@st.composite
def draw_problem(draw):
    """Draw the answers and the verdicts of one problem's samples."""
    samples = draw(st.integers(1, 8))
    codes = st.integers(NO_ANSWER, 4)
    answers = draw(st.lists(codes, min_size=samples, max_size=samples))
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
