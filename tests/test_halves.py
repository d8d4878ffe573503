"""Halves A and B: found in selections of any order; other selections are errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.experiments.allocation import find_halves

DIFFUSE, CONCENTRATED = Arm("diffuse", 13), Arm("concentrated", 13)


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


OTHER_A = [build_example(f"a{i}", response=(9,)) for i in range(3)]
OTHER_REPLAY = [build_example("g0", "G", (8,)), REPLAY[1]]


@pytest.mark.parametrize(
    ("diffuse", "concentrated", "named"),
    [
        (A + B, A, "a0"),
        (A + B, A + A + A, "a0"),
        (A + B + B[:1], A + A, "b0"),
        (A[1:] + B, A + A, "a0"),
        (A + B, A + A + B[:1], "b0"),
        (A + B[:2], A + A, "half B"),
        (A, A + A, "half B"),
        (REPLAY, REPLAY, "half A"),
        (A + B + REPLAY, A + A + REPLAY[:1], "g1"),
        (A + B + REPLAY, A + A + OTHER_REPLAY, "g0"),
        # exposures count examples: a second response to a problem is not a second exposure
        (A + B, A + OTHER_A, "a0"),
        (A + B, A + A + [build_example("u0", "U")], "u0"),
    ],
)
def test_selections_without_halves_are_named(diffuse, concentrated, named):
    with pytest.raises(UserError, match=named):
        split_selections(diffuse, concentrated)
