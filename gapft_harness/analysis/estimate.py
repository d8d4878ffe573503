"""Estimates with their 95% interval and p value (Section 4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The probability outside a 95% interval on each side.
_TAIL = Fraction(1, 40)
#: The normal quantile of 1 - 1/40.
_NORMAL_QUANTILE = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95% interval, in the unit of the number (a fraction).

    Attributes:
        value: the number; exact where scores are 0 and 1.
        low: the lower end of the interval; NaN without an interval.
        high: the upper end.
        p: the two-sided p value of a difference; None without a test.
    """

    value: Fraction | float
    low: float = math.nan
    high: float = math.nan
    p: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval."""
        return not math.isnan(self.low)

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval."""
        return self.low > 0 or self.high < 0

    def __neg__(self) -> Estimate:
        # Subtract instead of negating the ends: -0.0 would be displayed with a sign.
        return Estimate(-self.value, 0 - self.high, 0 - self.low, self.p)


def estimate_mean(
    value: Fraction | float, replicates: NDArray[np.number[Any]], per: int = 1
) -> Estimate:
    """Estimate a statistic with the percentile interval of its replicates.

    Args:
        value: the statistic.
        replicates: shape (B,).
        per: a divisor of both ends.
    """
    ordered = np.sort(replicates)
    low, high = (_interpolate_quantile(ordered, level) / per for level in (_TAIL, 1 - _TAIL))
    return Estimate(value, float(low), float(high))


def estimate_difference(
    value: Fraction | float, replicates: NDArray[np.number[Any]], per: int = 1
) -> Estimate:
    """Estimate a difference: its percentile interval, and the p value of ``compute_p_value``."""
    interval = estimate_mean(value, replicates, per)
    return Estimate(value, interval.low, interval.high, compute_p_value(replicates))


def estimate_share(share: Fraction | float, n: int) -> Estimate:
    """Estimate a share of n independent items with Wilson's 95% interval.

    It has a width where all items are equal, so that resampling shows no variation.
    """
    return Estimate(share, *_compute_wilson_ends(float(share), n))


def estimate_paired_difference(
    value: Fraction | float,
    before: NDArray[np.number[Any]],
    after: NDArray[np.number[Any]],
    units: int | None = None,
) -> Estimate:
    """Estimate after minus before with Newcombe's 95% interval for paired proportions.

    It is method 10 of Newcombe (1998, Statistics in Medicine 17, 2635-2650). It has a width where
    resampling shows no variation: where no item, or every item, changed.

    Args:
        value: the difference.
        before: shape (P,), 0 or 1.
        after: shape (P,), 0 or 1.
        units: the number of independent items; default: P.
    """
    n = len(before) if units is None else units
    share_before = float(before.mean())
    share_after = float(after.mean())
    low_before, high_before = _compute_wilson_ends(share_before, n)
    low_after, high_after = _compute_wilson_ends(share_after, n)
    # The correlation of the two proportions, from shares, with the method's continuity correction.
    covariance = float((before * after).mean()) - share_before * share_after
    if covariance > 0:
        covariance = max(covariance - 1 / (2 * n), 0)
    # In an order of operations that gives the mirrored interval when before and after are swapped.
    variance = (share_before * (1 - share_before)) * (share_after * (1 - share_after))
    correlation = covariance / math.sqrt(variance) if variance > 0 else 0.0

    def compute_distance(first: float, second: float) -> float:
        return math.sqrt(max(first**2 + second**2 - 2 * correlation * (first * second), 0))

    difference = share_after - share_before
    below = compute_distance(share_after - low_after, high_before - share_before)
    above = compute_distance(high_after - share_after, share_before - low_before)
    return Estimate(value, difference - below, difference + above)


def compute_p_value(replicates: NDArray[np.number[Any]]) -> float | None:
    """Compute the two-sided p value of a difference from its replicates.

    It is the smallest level whose percentile interval excludes zero, so it is below 0.05 exactly
    if the 95% interval excludes zero. B replicates cannot resolve less than 2 / (B + 1), which is
    the lower limit.

    Args:
        replicates: shape (B,).

    Returns:
        The p value; None if its lower limit is 0.05 or more.
    """
    least = Fraction(2, len(replicates) + 1)
    if least >= 2 * _TAIL:
        return None
    ordered = np.sort(replicates)
    below = _find_zero_level(ordered)
    above = _find_zero_level(-ordered[::-1])
    return float(min(Fraction(1), max(least, 2 * min(below, above))))


def _compute_wilson_ends(share: float, n: int) -> tuple[float, float]:
    """Compute Wilson's 95% interval of a share of n items."""
    squared = _NORMAL_QUANTILE**2 / n
    middle = (share + squared / 2) / (1 + squared)
    half = math.sqrt(share * (1 - share) * squared + squared**2 / 4) / (1 + squared)
    # Rounding must not move the end of a share of none or all.
    low = 0.0 if share == 0 else max(0.0, middle - half)
    high = 1.0 if share == 1 else min(1.0, middle + half)
    return low, high


def _interpolate_quantile(ordered: NDArray[np.number[Any]], level: Fraction) -> Fraction:
    """Compute a quantile by linear interpolation as ``numpy.quantile``, but exactly.

    Rounding could change the sign, which decides whether an interval excludes zero.
    """
    position = level * (len(ordered) - 1)
    lower = math.floor(position)
    low, high = (Fraction(float(v)) for v in (ordered[lower], ordered[math.ceil(position)]))
    return low + (position - lower) * (high - low)


def _find_zero_level(ordered: NDArray[np.number[Any]]) -> Fraction:
    """Find the largest level whose quantile is zero or less; 0 if there is none."""
    last = int(np.searchsorted(ordered, 0, side="right")) - 1
    if last < 0:
        return Fraction(0)
    if last == len(ordered) - 1:
        return Fraction(1)
    low, high = (Fraction(float(v)) for v in ordered[last : last + 2])
    return (last - low / (high - low)) / (len(ordered) - 1)
