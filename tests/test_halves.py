"""Halves A and B: found in selections of any order; other selections are errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.experiments.allocation import find_halves

DIFFUSE, CONCENTRATED = Arm("diffuse", 13), Arm("concentrated", 13)
NAMES = "arms diffuse-seed13 and concentrated-seed13"


def build_example(name, state="S", response=(7,)):
    return Example(name, state, (1, 2), response, 0, 0)


A = [build_example(f"a{i}") for i in range(3)]
B = [build_example(f"b{i}") for i in range(3)]
REPLAY = [build_example(f"g{i}", "G") for i in range(2)]


def split_selections(diffuse, concentrated):
    return find_halves(DIFFUSE, diffuse, CONCENTRATED, concentrated)


@given(st.integers(0, 2**32 - 1))
def test_halves_do_not_depend_on_order(number):
    rng = np.random.default_rng(number)
    diffuse, concentrated = A + B + REPLAY, A + A + REPLAY
    halves = split_selections(
        [diffuse[i] for i in rng.permutation(len(diffuse))],
        [concentrated[i] for i in rng.permutation(len(concentrated))],
    )
    assert (halves.a, halves.b, halves.replay) == (("a0", "a1", "a2"), ("b0", "b1", "b2"), 2)
    assert halves.problem_ids == ("a0", "a1", "a2", "b0", "b1", "b2")


def test_replay_may_repeat_and_may_be_empty():
    assert split_selections(A + B, A + A).replay == 0
    assert split_selections(A + B + REPLAY * 3, A + A + REPLAY * 3).replay == 6


@pytest.mark.parametrize(
    ("diffuse", "concentrated", "message"),
    [
        (A + B, A, r"problem a0 .*1 and 1 times"),
        (A + B, A + A + A, r"problem a0 .*1 and 3 times"),
        (A + B + B[:1], A + A, r"problem b0 .*2 and 0 times"),
        (A[1:] + B, A + A, r"problem a0 .*0 and 2 times"),
        (A + B, A + A + B[:1], r"problem b0 .*1 and 1 times"),
        (A + B[:2], A + A, r"half A has 3 problems and half B 2"),
        (A, A + A, r"half A has 3 problems and half B 0"),
        (REPLAY, REPLAY, r"half A has 0 problems and half B 0"),
        (A + B + REPLAY, A + A + REPLAY[:1], r"1 solved problems differ \(first: g1\)"),
        (
            A + B + REPLAY,
            A + A + [build_example("g0", "G", (8,)), REPLAY[1]],
            r"1 solved problems differ \(first: g0\)",
        ),
    ],
)
def test_rejects_selections_without_halves(diffuse, concentrated, message):
    with pytest.raises(UserError, match=f"{NAMES}.*{message}.*experiments.allocation"):
        split_selections(diffuse, concentrated)


def test_second_response_is_another_example():
    """Exposures count examples: a second response to a problem is not a second exposure."""
    twice = [*A, *(build_example(e.problem_id, response=(9,)) for e in A)]
    with pytest.raises(UserError, match=r"problem a0 .*1 and 1 times"):
        split_selections(A + B, twice)


def test_rejects_missed_problems():
    with pytest.raises(UserError, match=r"arm concentrated-seed13: 1 examples .*first: u0"):
        split_selections(A + B, A + A + [build_example("u0", "U")])
