"""What makes one training's gain differ from another's: components of variance, and what they ask.

A *gain* is a trained model's Pass@1 minus the source's. A replicate is an arm trained again with
one cause drawn anew, so half the mean square of (replicate minus arm) is that cause's variance,
with that of the engine, which is there each time. What draws the examples is what the seeds'
spread holds beyond it (a nested analysis of variance). Gains are taken as normal, as Pass@1 over
hundreds of problems is; ``python -m tests.benchmarks noise`` plants components and recovers them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.core.streams import Stream

#: Draws of mean squares, of which the intervals are quantiles.
DRAWS = 20_000
_TAIL = 0.025
#: Quantiles that a power is averaged over.
_PLACES = 2_000

#: Causes of which a replicate draws one anew, or all of them, or none.
ENGINE, EVERY = "none", "all"
#: Causes that are not drawn anew by a replicate.
SELECTION, ITEMS = "selection", "items"


@dataclass(frozen=True, slots=True)
class Component:
    """The variance of one arm's gain that is due to one cause.

    Attributes:
        cause: ``none`` (the engine), ``order``, ``dropout``, ``adapter``, ``all`` (these three and
            the engine), ``selection`` or ``items``.
        variance: of a gain as a fraction; never below 0.
        interval: 95%, of the variance.
        freedom: degrees of freedom that it rests on.
    """

    cause: str
    variance: float
    interval: Interval
    freedom: int

    @property
    def points(self) -> float:
        """Standard deviation in percentage points."""
        return 100 * math.sqrt(self.variance)

    @property
    def points_interval(self) -> Interval:
        """Its 95% interval, in points."""
        return Interval(*(100 * math.sqrt(end) for end in (self.interval.low, self.interval.high)))


@dataclass(frozen=True, slots=True)
class _MeanSquare:
    """A mean square and what it may have been: its degrees of freedom over a chi-square draw."""

    value: float
    freedom: int
    drawn: NDArray[np.float64]

    @classmethod
    def of(cls, value: float, freedom: int, rng: np.random.Generator) -> _MeanSquare:
        return cls(value, freedom, value * freedom / rng.chisquare(freedom, DRAWS))


def components(
    gains: NDArray[np.float64],
    replicates: Mapping[str, NDArray[np.float64]],
    differences: NDArray[np.float64],
    stream: Stream,
) -> list[Component]:
    """Splits the variance of one condition's gain.

    Args:
        gains: shape (S,), of each training seed, S >= 2; a seed draws everything anew.
        replicates: by cause, shape (S,), gains of the same seeds with that cause drawn anew.
            ``selection`` is told where ``all`` is there.
        differences: shape (S, P), each audit decision minus the source's, of which ``items`` is
            told: what another audit of as many problems would move one arm's gain by.
        stream: the randomness of the intervals.

    Raises:
        ValueError: fewer than two seeds, or shapes that do not fit.
    """
    seeds = len(gains)
    if seeds < 2 or any(len(of) != seeds for of in (*replicates.values(), differences)):
        raise ValueError("expected two training seeds or more, and of each its replicates")
    rng = stream.generator()
    squares = {
        cause: _MeanSquare.of(float(np.mean((again - gains) ** 2)) / 2, seeds, rng)
        for cause, again in replicates.items()
    }
    engine = squares.get(ENGINE)
    found = []
    for cause, square in squares.items():
        value, drawn = square.value, square.drawn
        if engine is not None and cause not in (ENGINE, EVERY):
            value, drawn = value - engine.value, drawn - engine.drawn
        found.append(_component(cause, value, drawn, seeds))
    if EVERY in replicates:
        within = squares[EVERY]
        means = (gains + replicates[EVERY]) / 2
        between = _MeanSquare.of(2 * float(np.var(means, ddof=1)), seeds - 1, rng)
        value = (between.value - within.value) / 2
        found.append(_component(SELECTION, value, (between.drawn - within.drawn) / 2, seeds - 1))
    found.append(_items(differences))
    return found


def _component(cause: str, value: float, drawn: NDArray[np.float64], freedom: int) -> Component:
    """Quantiles of the draws; where nearly all are below 0, the upper end is of those that are not.

    Else the interval would be [0, 0], and say that there is nothing for certain.
    """
    low, high = (max(0.0, float(of)) for of in np.quantile(drawn, [_TAIL, 1 - _TAIL]))
    if not high and value < 0 and (drawn > 0).any():
        high = float(np.quantile(drawn[drawn > 0], 1 - _TAIL))
    return Component(cause, max(0.0, value), Interval(low, high), freedom)


def _items(differences: NDArray[np.float64]) -> Component:
    """The variance of a mean over problems, by the spread of their differences under a seed."""
    problems = differences.shape[1]
    centred = differences - differences.mean(axis=1, keepdims=True)
    by_problem = (centred**2).mean(axis=0) * problems / (problems - 1)
    variance = float(by_problem.mean())
    half = 1.96 * float(by_problem.std(ddof=1)) / math.sqrt(problems)
    interval = Interval(max(0.0, variance - half) / problems, (variance + half) / problems)
    return Component(ITEMS, variance / problems, interval, problems - 1)


def prediction_interval(values: NDArray[np.float64], level: float = 0.8) -> Interval:
    """Where one more of normal values falls with this probability, whatever their spread.

    Args:
        values: shape (S,), S >= 2, such as the gains of training seeds.
        level: its probability.
    """
    from scipy import stats

    seeds = len(values)
    half = (
        float(stats.t.ppf((1 + level) / 2, seeds - 1))
        * float(np.std(values, ddof=1))
        * math.sqrt(1 + 1 / seeds)
    )
    middle = float(np.mean(values))
    return Interval(middle - half, middle + half)


def seeds_needed(deviation: float, difference: float, power: float = 0.8) -> int:
    """How many training seeds a claim takes: Student's paired test, two-sided at 5%.

    Args:
        deviation: of a seed's difference between two conditions.
        difference: the true one, in the same unit, above 0.
        power: the probability that the test finds it.

    Returns:
        At least 2.
    """
    from scipy import stats

    places = (np.arange(_PLACES) + 0.5) / _PLACES

    def found(seeds: int) -> float:
        """Over quantiles of the estimated deviation: scipy's noncentral t is NaN far out."""
        spread = np.sqrt(stats.chi2.ppf(places, seeds - 1) / (seeds - 1))
        least = stats.t.ppf(0.975, seeds - 1) * spread
        shift = difference / deviation * math.sqrt(seeds)
        return float(np.mean(stats.norm.sf(least - shift) + stats.norm.cdf(-least - shift)))

    if deviation == 0:
        return 2
    few, many = 1, 2
    while found(many) < power:
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if found(middle) >= power else (middle, many)
    return many
