"""The paired permutation test of two conditions on one audit (Table 4, "inclusion tests")."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import Stream


@dataclass(frozen=True, slots=True)
class PairedPermutation:
    """The result of a paired permutation test of a difference of Pass@1.

    Attributes:
        difference: the mean of a minus b over seeds and problems.
        p_value: the two-sided p value; under the null hypothesis the outcomes under a and b are
            exchangeable for every problem.
        permutations: the number of permutations compared.
        exhaustive: whether these are all permutations, so that the p value is exact.
    """

    difference: Fraction
    p_value: Fraction
    permutations: int
    exhaustive: bool


def compare_by_permutation(
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    *,
    item_ids: NDArray[np.str_],
    permutations: int,
    stream: Stream,
) -> PairedPermutation:
    """Test the difference of two conditions by exchanging them on random subsets of problems.

    A permutation exchanges the conditions on each problem with probability 1/2, for all seeds
    together. With d_i the sum over seeds of a minus b on problem i, its statistic is
    T* = sum of s_i d_i for signs s_i; the observed statistic T has all signs +1. Only the m
    problems with nonzero d_i matter. If 2^m is at most ``permutations``, all sign patterns are used
    and p = #{|T*| >= |T|} / 2^m; otherwise B patterns are drawn and
    p = (1 + #{|T*| >= |T|}) / (1 + B).

    The trained models are fixed: the test does not generalize to other training seeds.

    Args:
        a: shape (S, P): whether the greedy decode of seed s's model passes on problem i.
        b: shape (S, P), the same for the other condition, paired by seed and problem.
        item_ids: shape (P,), distinct; the order of problems does not matter.
        permutations: B.
        stream: the random stream.

    Raises:
        ValueError: shapes do not match, ids repeat, or ``permutations`` is below 1.
    """
    if a.shape != b.shape or a.ndim != 2 or not a.size or item_ids.shape != a.shape[1:]:
        raise ValueError(
            f"shapes do not match: decisions {a.shape} and {b.shape}, items {item_ids.shape}"
        )
    if len(np.unique(item_ids)) != len(item_ids):
        raise ValueError("item ids must be distinct")
    if permutations < 1:
        raise ValueError(f"expected at least one permutation, found {permutations}")
    differences = (a.astype(np.int64) - b.astype(np.int64)).sum(axis=0)[np.argsort(item_ids)]
    observed = int(differences.sum())
    changed = differences[differences != 0]
    exhaustive = len(changed) <= 62 and 2 ** len(changed) <= permutations
    if exhaustive:
        numbers = np.arange(2 ** len(changed))[:, None]
        bits = (numbers >> np.arange(len(changed))) & 1
    else:
        bits = stream.generator().integers(2, size=(permutations, len(changed)))
    totals = (2 * bits - 1) @ changed
    extreme = int((np.abs(totals) >= abs(observed)).sum())
    more = 0 if exhaustive else 1  # counts the observed pattern
    return PairedPermutation(
        difference=Fraction(observed, a.size),
        p_value=Fraction(extreme + more, len(bits) + more),
        permutations=len(bits),
        exhaustive=exhaustive,
    )
