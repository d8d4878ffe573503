"""The smallest difference of Pass@1 that seeds and audit items can detect.

Two models answer m items, under n pairs of training seeds. On an item they differ in correctness
with probability pi (the discordance), and with an effect delta one is right more often: the
difference of a pair of decisions is -1, 0 or 1, with mean delta and variance pi - delta^2. Of that
variance a share s is the items' own and comes back under every seed; the rest is drawn anew. The
mean over seeds and items then has variance (pi - delta^2) c / m with c = s + (1 - s) / n, and a
two-sided test at level a detects delta with the power

    Phi((delta sqrt(m / c) - z sqrt(pi)) / sqrt(pi - delta^2)),    z the 1 - a/2 quantile,

for c = 1 the usual power of McNemar's test (Miettinen 1968; Connor 1987, Biometrics 43, 207-211).
"""

from __future__ import annotations

import math

from scipy import optimize, stats

LEVEL = 0.05
POWER = 0.8


def power(
    effect: float, *, seeds: int, items: int, discordance: float, shared: float = 0.0
) -> float:
    """The chance that a two-sided paired test at level 5% finds an effect.

    Args:
        effect: delta, the difference of Pass@1, within 0..discordance.
        seeds: n, pairs of training seeds.
        items: m.
        discordance: pi, above 0 and at most 1.
        shared: s, within 0..1.

    Raises:
        ValueError: an argument is outside its bounds.
    """
    if seeds < 1 or items < 1 or not 0 < discordance <= 1 or not 0 <= shared <= 1:
        raise ValueError(
            f"expected seeds and items of 1 or more, a discordance above 0 and at most 1 and a "
            f"share within 0..1, found {seeds}, {items}, {discordance} and {shared}"
        )
    if not 0 <= effect <= discordance:
        raise ValueError(f"the effect must be within 0..{discordance}, found {effect}")
    repeats = shared + (1 - shared) / seeds
    quantile = float(stats.norm.ppf(1 - LEVEL / 2))
    distance = effect * math.sqrt(items / repeats) - quantile * math.sqrt(discordance)
    spread = math.sqrt(max(discordance - effect**2, 1e-300))
    return float(stats.norm.cdf(distance / spread))


def detectable(*, seeds: int, items: int, discordance: float, shared: float = 0.0) -> float | None:
    """The smallest effect that is found with power 80%; None where none is, however large.

    Args and errors as of ``power``.
    """

    def lacking(effect: float) -> float:
        found = power(effect, seeds=seeds, items=items, discordance=discordance, shared=shared)
        return found - POWER

    if lacking(discordance) < 0:
        return None
    return float(optimize.brentq(lacking, 0, discordance, xtol=1e-9))


def times_as_many(distance: float, width: float) -> float | None:
    """How much more data would tell a difference from a value, with power 80% at level 5%.

    The interval narrows with the root of the data: with the quantiles z of 1 - a/2 and y of the
    power, a difference at this distance is told where z + y standard errors fit into it.

    Args:
        distance: of the difference, taken as it was found, from the value.
        width: of its 95% interval, whose half is z standard errors.

    Returns:
        The factor; None where the difference lies on the value, so that no data would tell.
    """
    if not distance:
        return None
    quantile, more = (float(stats.norm.ppf(of)) for of in (1 - LEVEL / 2, POWER))
    return ((quantile + more) / quantile * width / 2 / distance) ** 2
