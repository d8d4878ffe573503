"""Halves of the allocation comparison; ``tests/test_controls.py`` has its table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Example
from gapft_harness.experiments.allocation import find_halves


def build_examples(letter, state="S", count=3, response=(7,)):
    return [Example(f"{letter}{i}", state, (1, 2), response, 0, 0) for i in range(count)]


A, B, REPLAY = build_examples("a"), build_examples("b"), build_examples("g", "G", 2)
OTHER_A = build_examples("a", response=(9,))
OTHER_REPLAY = [*build_examples("g", "G", 1, (8,)), REPLAY[1]]


@given(st.integers(0, 2**32 - 1))
def test_halves_do_not_depend_on_order(number):
    rng = np.random.default_rng(number)
    diffuse, concentrated = A + B + REPLAY * 2, A + A + REPLAY * 2
    halves = find_halves(
        [diffuse[i] for i in rng.permutation(len(diffuse))],
        [concentrated[i] for i in rng.permutation(len(concentrated))],
        "x and y",
    )
    expected = [("a0", "A"), ("a1", "A"), ("a2", "A"), ("b0", "B"), ("b1", "B"), ("b2", "B")]
    assert list(halves.items()) == expected
    assert find_halves(A + B, A + A, "x and y") == halves, "without replay"


@pytest.mark.parametrize(
    ("diffuse", "concentrated", "named"),
    [
        (A + B, A, "a0"),
        (A[1:] + B, A + A, "a0"),
        (A + B, A + A + B[:1], "b0"),
        (A + B[:2], A + A, "half B"),
        (REPLAY, REPLAY, "half A"),
        (A + B + REPLAY, A + A + OTHER_REPLAY, "g0"),
        # exposures count examples: a second response to a problem is not a second exposure
        (A + B, A + OTHER_A, "a0"),
        (A + B, A + A + build_examples("u", "U"), "u0"),
    ],
)
def test_selections_without_halves_are_named(diffuse, concentrated, named):
    with pytest.raises(UserError, match=named) as caught:
        find_halves(diffuse, concentrated, "arms x and y")
    assert "arms x and y" in str(caught.value)
