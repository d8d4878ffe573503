"""Paired differences of any number per item: exact and sign-flip tests, Holm's correction.

Training seeds are held fixed by both tests: they speak of these models on other items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import Stream

#: Signs held in memory at once.
_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class SignFlips:
    """What sign flips say of a sum of differences.

    Attributes:
        p_value: two-sided, of the null that each difference could as well have the other sign.
        flips: how many patterns of signs were compared.
        exhaustive: whether they are all that there are, so that the p value is exact.
    """

    p_value: float
    flips: int
    exhaustive: bool


def mcnemar(gained: int, lost: int) -> float:
    """McNemar's exact test: the two-sided p value of ``gained`` among as many fair coins.

    1 where nothing changed.
    """
    from scipy import stats

    changed = gained + lost
    return float(stats.binomtest(gained, changed, 0.5).pvalue) if changed else 1.0


def sign_flips(
    differences: NDArray[np.floating] | NDArray[np.integer], *, flips: int, stream: Stream
) -> SignFlips:
    """Gives each difference a random sign, again and again.

    T is the sum of the differences, T* that under random signs. Only the m that are not 0 matter.
    If 2^m is at most ``flips``, all patterns are taken and p = #{|T*| >= |T|} / 2^m, else
    p = (1 + #{|T*| >= |T|}) / (1 + B) of B drawn ones. Sums of floats are compared up to rounding.

    Args:
        differences: shape (P,): of each item, or summed over each cluster of items.
        flips: B.
        stream: the randomness.

    Raises:
        ValueError: no flip.
    """
    if flips < 1:
        raise ValueError(f"expected at least one flip, found {flips}")
    changed = np.asarray(differences, dtype=np.float64)
    changed = changed[changed != 0]
    least = abs(float(changed.sum())) - 1e-12 * float(np.abs(changed).sum())
    exhaustive = len(changed) <= 62 and 2 ** len(changed) <= flips
    total = 2 ** len(changed) if exhaustive else flips
    generator = stream.generator()
    extreme = 0
    chunk = max(1, _CHUNK_VALUES // max(1, len(changed)))
    for start in range(0, total, chunk):
        rows = min(chunk, total - start)
        if exhaustive:
            numbers = np.arange(start, start + rows)[:, None]
            bits = (numbers >> np.arange(len(changed))) & 1
        else:
            bits = generator.integers(2, size=(rows, len(changed)), dtype=np.int8)
        # each sign is 2 bit - 1, so the sum is twice that of the drawn ones, less all
        totals = 2 * (bits.astype(np.float64) @ changed) - changed.sum()
        extreme += int((np.abs(totals) >= least).sum())
    more = 0 if exhaustive else 1  # the observed pattern itself
    return SignFlips((extreme + more) / (total + more), total, exhaustive)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: compared with a level, it holds the family's error below it.

    The i-th smallest of m, from 0, is multiplied by m - i; none is below a smaller one's, or above
    1.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


# How many decisions differ between two models on one audit: what a small difference may hide.
#
# Two trainings on the same data differed by 0.07 points of Pass@1 and in 331 of 1,367 decisions
# (the paper's appendix on implementation details).


@dataclass(frozen=True, slots=True)
class Changes:
    """Which decisions changed from one model to the other.

    Attributes:
        n: problems.
        lost: right by the first, wrong by the second.
        gained: wrong by the first, right by the second.
    """

    n: int
    lost: int
    gained: int

    @property
    def changed(self) -> int:
        """Decisions that differ, whichever way."""
        return self.lost + self.gained

    @property
    def share(self) -> Fraction:
        """Of all decisions, those that differ."""
        return Fraction(self.changed, self.n)

    @property
    def difference(self) -> Fraction:
        """Pass@1 of the second minus that of the first."""
        return Fraction(self.gained - self.lost, self.n)


def changes(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Changes:
    """Counts the decisions that differ.

    Args:
        first: shape (P,), whether each problem was right; P > 0.
        second: shape (P,), the same of the other model.

    Raises:
        ValueError: shapes that do not fit, or no problem.
    """
    if first.shape != second.shape or first.ndim != 1 or not first.size:
        raise ValueError(f"decisions of shapes {first.shape} and {second.shape} do not fit")
    return Changes(first.size, int((first & ~second).sum()), int((~first & second).sum()))
