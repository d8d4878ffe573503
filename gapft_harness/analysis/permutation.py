"""The paired permutation test of two conditions on one audit (Table 4, "inclusion tests")."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import Stream


@dataclass(frozen=True, slots=True)
class PairedPermutation:
    """What the permutations say of a difference of Pass@1.

    Attributes:
        difference: the mean of a minus b over seeds and problems.
        p_value: two-sided, of the null that every problem's outcomes under a and under b could as
            well have been exchanged.
        permutations: how many were compared.
        exhaustive: whether they are all that there are, so that the p value is exact.
    """

    difference: Fraction
    p_value: Fraction
    permutations: int
    exhaustive: bool


def paired_permutation(
    a: NDArray[np.bool_],
    b: NDArray[np.bool_],
    *,
    item_ids: NDArray[np.str_],
    permutations: int,
    stream: Stream,
) -> PairedPermutation:
    """Exchanges the two conditions on a random half of the problems, again and again.

    A permutation keeps or exchanges a problem under all seeds alike, each with probability 1/2.
    With d_i the sum over seeds of a minus b on problem i, its statistic is T* = sum of s_i d_i for
    signs s_i, and T that of the signs that were observed, all +1. Only the m problems with d_i
    other than 0 matter. If 2^m is at most ``permutations``, all sign patterns are taken, and
    p = #{|T*| >= |T|} / 2^m. Otherwise p = (1 + #{|T*| >= |T|}) / (1 + B) of B drawn ones.

    The trained models are taken as they are: the test says nothing of other training seeds.

    Args:
        a: shape (S, P): whether the greedy decode of seed s's model passes on problem i.
        b: the same of the other condition, paired by seed and problem.
        item_ids: shape (P,), distinct; the order of problems changes nothing.
        permutations: B.
        stream: the randomness.

    Raises:
        ValueError: shapes that do not fit, repeated ids, or no permutation.
    """
    if a.shape != b.shape or a.ndim != 2 or not a.size or item_ids.shape != a.shape[1:]:
        raise ValueError(f"{a.shape} and {b.shape} decisions do not fit {item_ids.shape} items")
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
    more = 0 if exhaustive else 1  # the observed pattern itself
    return PairedPermutation(
        difference=Fraction(observed, a.size),
        p_value=Fraction(extreme + more, len(bits) + more),
        permutations=len(bits),
        exhaustive=exhaustive,
    )
