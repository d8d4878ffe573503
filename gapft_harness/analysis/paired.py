"""Tests of paired differences per item: McNemar's test, sign flips, Holm's correction.

Both tests hold the training seeds fixed: they generalize to other items, not to other trainings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import Stream

#: Signs in memory at once.
_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True, slots=True)
class SignFlips:
    """The result of a sign-flip test of a sum of differences.

    Attributes:
        p_value: the two-sided p value; under the null hypothesis both signs of each difference are
            equally likely.
        flips: the number of sign patterns compared.
        exhaustive: whether these are all patterns, so that the p value is exact.
    """

    p_value: float
    flips: int
    exhaustive: bool


def mcnemar(gained: int, lost: int) -> float:
    """Compute the two-sided p value of McNemar's exact test.

    Args:
        gained: the number of items correct only after the change.
        lost: the number of items correct only before it.

    Returns:
        The probability, for gained + lost fair coins, of a result at least as extreme; 1 if nothing
        changed.
    """
    from scipy import stats

    changed = gained + lost
    return float(stats.binomtest(gained, changed, 0.5).pvalue) if changed else 1.0


def flip_signs(
    differences: NDArray[np.floating] | NDArray[np.integer], *, flips: int, stream: Stream
) -> SignFlips:
    """Test a sum of differences against random signs.

    T is the sum of the differences, and T* the sum with random signs. Only the m nonzero
    differences matter. If 2^m is at most ``flips``, all patterns are used and
    p = #{|T*| >= |T|} / 2^m; otherwise B patterns are drawn and
    p = (1 + #{|T*| >= |T|}) / (1 + B). Sums of floats are compared with a tolerance for rounding.

    Args:
        differences: shape (P,): one for each item, or summed over each cluster of items.
        flips: B.
        stream: the random stream.

    Raises:
        ValueError: ``flips`` is below 1.
    """
    if flips < 1:
        raise ValueError(f"expected at least one flip, found {flips}")
    changed = np.asarray(differences, dtype=np.float64)
    changed = changed[changed != 0]
    threshold = abs(float(changed.sum())) - 1e-12 * float(np.abs(changed).sum())
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
        # A sign is 2 bit - 1, so T* is twice the sum over the bits that are 1, minus T.
        totals = 2 * (bits.astype(np.float64) @ changed) - changed.sum()
        extreme += int((np.abs(totals) >= threshold).sum())
    more = 0 if exhaustive else 1  # counts the observed pattern
    return SignFlips((extreme + more) / (total + more), total, exhaustive)


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Adjust p values by Holm's step-down method, which controls the family-wise error rate.

    The i-th smallest of m p values (i from 0) is multiplied by m - i. An adjusted value is at most
    1, and at least the adjusted value of any smaller p value.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted
