"""The smallest difference of Pass@1 that seeds and audit items can detect.

Two models answer m items, under n pairs of training seeds. On an item their correctness differs
with probability pi (the discordance), and delta is the effect: the difference of a pair of
decisions is -1, 0 or 1, with mean delta and variance pi - delta^2. Seeds are independent, so the
mean over seeds and items has variance (pi - delta^2) / (n m), and a two-sided test at level a
detects delta with the power

    Phi((delta sqrt(n m) - z sqrt(pi)) / sqrt(pi - delta^2)),    z the 1 - a/2 quantile.

For n = 1 this is the usual power of McNemar's test (Miettinen 1968; Connor 1987, Biometrics 43,
207-211).
"""

from __future__ import annotations

import math

from scipy import optimize, stats

LEVEL = 0.05
POWER = 0.8
#: A distance is zero if it is this small, as a share of the interval's width.
_ZERO_DISTANCE = 1e-9


def compute_power(effect: float, *, seeds: int, items: int, discordance: float) -> float:
    """Compute the probability that a two-sided paired test at level 5% detects an effect.

    Args:
        effect: delta, the difference of Pass@1, within 0..discordance.
        seeds: n, pairs of training seeds.
        items: m.
        discordance: pi, above 0 and at most 1.

    Raises:
        ValueError: an argument is outside its bounds.
    """
    if seeds < 1 or items < 1 or not 0 < discordance <= 1:
        raise ValueError(
            f"expected seeds and items of at least 1, and a discordance above 0 and at most 1; "
            f"found {seeds}, {items} and {discordance}"
        )
    if not 0 <= effect <= discordance:
        raise ValueError(f"the effect must be within 0..{discordance}, found {effect}")
    quantile = float(stats.norm.ppf(1 - LEVEL / 2))
    distance = effect * math.sqrt(items * seeds) - quantile * math.sqrt(discordance)
    spread = math.sqrt(max(discordance - effect**2, 1e-300))
    return float(stats.norm.cdf(distance / spread))


def find_detectable_effect(*, seeds: int, items: int, discordance: float) -> float | None:
    """Find the smallest effect that is detected with power 80%.

    Args:
        seeds: n, pairs of training seeds.
        items: m.
        discordance: pi, above 0 and at most 1.

    Returns:
        The difference of Pass@1; None if even the largest effect, pi, is not detected.

    Raises:
        ValueError: an argument is outside its bounds.
    """

    def compute_surplus(effect: float) -> float:
        achieved = compute_power(effect, seeds=seeds, items=items, discordance=discordance)
        return achieved - POWER

    if compute_surplus(discordance) < 0:
        return None
    return float(optimize.brentq(compute_surplus, 0, discordance, xtol=1e-9))


def compute_data_factor(distance: float, width: float) -> float | None:
    """Compute how much more data would separate a difference from a value (power 80%, level 5%).

    The interval narrows with the square root of the amount of data. With z the 1 - a/2 quantile and
    y the quantile of the power, the difference is separated if its distance is z + y standard
    errors.

    Args:
        distance: the distance between the observed difference and the value.
        width: the width of the difference's 95% interval, which is 2 z standard errors.

    Returns:
        The factor by which to multiply the data; None if the distance is 0, up to rounding.
    """
    if abs(distance) <= _ZERO_DISTANCE * width:
        return None
    quantile, more = (float(stats.norm.ppf(probability)) for probability in (1 - LEVEL / 2, POWER))
    return ((quantile + more) / quantile * width / 2 / distance) ** 2
