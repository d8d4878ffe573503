"""The paired permutation test against enumeration, exact distributions and its laws."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gapft_harness.analysis.paired import SignFlips, flip_signs
from gapft_harness.core.streams import Stream

Outcomes = NDArray[np.bool_]


def compare_outcomes(
    a: Outcomes, b: Outcomes, permutations: int = 2000, seed: int = 0
) -> SignFlips:
    """Exchange the conditions on problems, for all seeds together."""
    differences = a.sum(axis=0) - b.sum(axis=0)
    return flip_signs(differences, flips=permutations, stream=Stream(seed, "test"))


def compute_exact_p_value(a: Outcomes, b: Outcomes) -> Fraction:
    """Enumerate all exchanges of the conditions, including problems without a change."""
    d = (a.astype(int) - b.astype(int)).sum(axis=0).tolist()
    totals = [
        sum(s * x for s, x in zip(signs, d, strict=True))
        for signs in product((1, -1), repeat=len(d))
    ]
    return Fraction(sum(abs(t) >= abs(sum(d)) for t in totals), len(totals))


def count_totals(d: list[int]) -> dict[int, int]:
    """Count the sign patterns of each total by convolution, which gives the exact null."""
    counts = {0: 1}
    for x in d:
        new: dict[int, int] = {}
        for total, count in counts.items():
            for moved in (total + x, total - x):
                new[moved] = new.get(moved, 0) + count
        counts = new
    return counts


outcomes = st.integers(1, 3).flatmap(
    lambda seeds: st.integers(1, 9).flatmap(
        lambda items: st.tuples(
            *[
                st.lists(
                    st.lists(st.booleans(), min_size=items, max_size=items),
                    min_size=seeds, max_size=seeds,
                ).map(np.array)
            ] * 2
        )
    )
)  # fmt: skip


@given(outcomes)
def test_enumerates_few_permutations(pair: tuple[Outcomes, Outcomes]) -> None:
    a, b = pair
    result = compare_outcomes(a, b)
    assert result.exhaustive
    assert result.p_value == float(compute_exact_p_value(a, b))
    assert result.flips == 2 ** int((a.sum(axis=0) != b.sum(axis=0)).sum())


@given(outcomes, st.randoms())
def test_ignores_order_of_seeds_and_conditions(
    pair: tuple[Outcomes, Outcomes], random: Any
) -> None:
    a, b = pair
    seeds = [*range(a.shape[0])]
    random.shuffle(seeds)
    original = compare_outcomes(a, b, 4)
    assert original == compare_outcomes(a[seeds], b[seeds], 4)
    assert original == compare_outcomes(b, a, 4)


@pytest.mark.parametrize("seed", range(5))
def test_drawn_permutations_approximate_exact_null(seed: int) -> None:
    """60 problems change by up to 3: a convolution gives the distribution of 2^60 patterns."""
    rng = np.random.default_rng(seed)
    a, b = rng.random((3, 400)) < 0.62, rng.random((3, 400)) < 0.56
    same = rng.random(400) < 0.85
    b[:, same] = a[:, same]
    d = (a.astype(int) - b.astype(int)).sum(axis=0)
    null = count_totals([int(x) for x in d if x])
    right = sum(c for t, c in null.items() if abs(t) >= abs(int(d.sum()))) / sum(null.values())
    result = compare_outcomes(a, b, 20_000, seed)
    assert not result.exhaustive
    assert result.flips == 20_000
    assert abs(float(result.p_value) - right) < 5 * sqrt(right * (1 - right) / 20_000) + 1e-4


def test_single_seed_equals_sign_test() -> None:
    """McNemar's exact test: 9 of 10 changed problems are a's; 2 (C(10,9) + 1) / 2^10."""
    a = np.array([[True] * 9 + [False] + [True] * 5])
    b = np.array([[False] * 9 + [True] + [True] * 5])
    assert compare_outcomes(a, b).p_value == 2 * (comb(10, 9) + 1) / 2**10


def test_identical_conditions_have_p_of_one() -> None:
    a = np.array([[True, False, True]])
    assert compare_outcomes(a, a) == SignFlips(1.0, 1, True)


def test_p_value_is_positive_and_uniform_under_null() -> None:
    everything, nothing = np.ones((3, 200), dtype=bool), np.zeros((3, 200), dtype=bool)
    assert compare_outcomes(everything, nothing, 99).p_value == 1 / 100
    rng = np.random.default_rng(5)
    drawn = [
        compare_outcomes(rng.random((2, 60)) < 0.5, rng.random((2, 60)) < 0.5, 199, i).p_value
        for i in range(400)
    ]
    assert 0.02 < np.mean(np.array(drawn) <= 0.05) < 0.09
