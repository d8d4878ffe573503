"""The interval of a share of independent problems."""

from __future__ import annotations

from fractions import Fraction

from scipy import stats

from gapft_harness.analysis.estimate import Estimate

#: The 97.5% quantile of the normal distribution.
_QUANTILE = float(stats.norm.ppf(0.975))


def estimate_share(share: Fraction | float, n: int) -> Estimate:
    """Estimate a share of n problems with its Wilson interval, which also holds for 0 and 1.

    Args:
        share: from 0 to 1; a mean of values within 0..1 has at most the spread of such a share.
        n: number of problems, at least 1.
    """
    square = _QUANTILE**2
    value = float(share)
    middle = (value + square / (2 * n)) / (1 + square / n)
    spread = _QUANTILE * (value * (1 - value) / n + square / (4 * n**2)) ** 0.5 / (1 + square / n)
    low = 0.0 if value == 0 else max(0.0, middle - spread)
    high = 1.0 if value == 1 else min(1.0, middle + spread)
    return Estimate(share, low, high, n=n)
