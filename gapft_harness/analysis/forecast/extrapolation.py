"""Pass@k for more samples than were drawn, and how many problems those would recover.

The families of ``mixtures`` are equally likely a priori, and weighed by a power of the probability
of the counts under each. Intervals hold 80%: 10% lie below and 10% above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.forecast.mixtures import (
    FAMILIES,
    LEAST,
    Array,
    Family,
    chances,
    draw_prior,
    log_likelihood,
    log_prior,
    missed,
)

#: The share that an interval holds.
LEVEL = 0.8
#: No family is quite true. Of very many problems, their counts weigh families as those of so many
#: would: the power is this over itself and the number of problems (a coarsened posterior, Miller
#: and Dunson 2019). Without it the family that is least wrong within n samples alone would be
#: left, whatever it says of chances that n samples do not show.
DECISIVE = 8000


@dataclass(frozen=True, slots=True)
class Estimates:
    """A value of each of B pools, shape (B,), with its 80% interval."""

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class Fit:
    """What the counts of B pools say.

    Attributes:
        histograms: shape (B, n + 1): how many problems passed c of n samples.
        points: of each family, shape (B, N, d), all equally likely within it.
        weights: of each family, shape (B,): how probable it is; they sum to 1.
        seed: of what is drawn from the fit.
    """

    histograms: Array
    points: Mapping[Family, Array]
    weights: Mapping[Family, Array]
    seed: int

    @property
    def samples(self) -> int:
        """How many samples n of each problem."""
        return int(self.histograms.shape[1]) - 1

    def pass_at_k(self, k: int) -> Estimates:
        """Pass@k of these problems: the mean over them of 1 - (1 - p)^k, for k drawn anew.

        Given a point, (1 - p)^k of each problem has a known mean and variance, given its own
        count; their sum over problems is taken as a gamma variable with its mean and variance,
        for it is above 0, and skewed where few hard problems make it.

        Args:
            k: how many samples a verifier may choose from, 1 or more.
        """
        if k < 1:
            raise ValueError(f"expected k of 1 or more, found {k}")
        rng = np.random.default_rng(self.seed)
        problems = self.histograms.sum(axis=1)[:, None]
        values, spread = [], []
        for family, points in self.points.items():
            once = missed(family, self.samples, points, k)
            variance = np.maximum(missed(family, self.samples, points, 2 * k) - once**2, 0)
            mean = np.einsum("cbn,bc->bn", once, self.histograms)
            variance = np.einsum("cbn,bc->bn", variance, self.histograms)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                shape = np.where(variance > 0, mean**2 / variance, np.inf)
                drawn = rng.gamma(np.clip(shape, 1e-12, 1e12)) * variance / mean
            values.append(1 - mean / problems)
            spread.append(1 - np.where((variance > 0) & (mean > 0), drawn, mean) / problems)
        return self._estimates(values, [np.clip(of, 0, 1) for of in spread])

    def newly_solved(self, extra: int, unsolved: NDArray[np.integer] | None = None) -> Estimates:
        """How many problems that no sample solved, further samples would solve.

        Given a point, each is solved with the chance 1 - E[(1 - p)^extra | c = 0], independently.

        Args:
            extra: how many further samples of each.
            unsolved: shape (B,), how many such problems; default: those of the counts.
        """
        rng = np.random.default_rng(self.seed)
        count = self.histograms[:, 0] if unsolved is None else np.asarray(unsolved)
        chances = [
            np.clip(1 - missed(family, self.samples, points, extra)[0], 0, 1)
            for family, points in self.points.items()
        ]
        drawn = [rng.binomial(count.astype(np.int64)[:, None], of) for of in chances]
        return self._estimates([count[:, None] * of for of in chances], drawn)

    def fits(self) -> Array:
        """How often counts as unlike the fit as these come about if it is right, shape (B,).

        A posterior predictive check (Gelman, Meng, Stern 1996): counts are drawn anew from every
        point, and the share of them is given whose Pearson distance from what the point expects is
        no less than that of the counts.
        """
        rng = np.random.default_rng(self.seed)
        problems = self.histograms.sum(axis=1)
        found = np.zeros(len(problems))
        for family, points in self.points.items():
            expected = np.moveaxis(chances(family, self.samples, points), 0, -1)
            expected = np.maximum(expected, LEAST)
            expected /= expected.sum(axis=-1, keepdims=True)
            drawn = rng.multinomial(problems.astype(np.int64)[:, None], expected)
            expected = expected * problems[:, None, None]
            far, near = (
                ((counts - expected) ** 2 / expected).sum(axis=-1)
                for counts in (drawn, self.histograms[:, None, :])
            )
            found += self.weights[family] * (far >= near).mean(axis=1)
        return found

    def _estimates(self, values: Sequence[Array], spread: Sequence[NDArray[Any]]) -> Estimates:
        weights = np.concatenate(
            [
                np.repeat(self.weights[family][:, None] / of.shape[1], of.shape[1], axis=1)
                for family, of in zip(self.points, values, strict=True)
            ],
            axis=1,
        )
        value = _quantile(np.concatenate(values, axis=1), weights, 0.5)
        every = np.concatenate(spread, axis=1)
        low, high = (_quantile(every, weights, (1 + side * LEVEL) / 2) for side in (-1, 1))
        return Estimates(value, np.minimum(low, value), np.maximum(high, value))


def fit(histograms: NDArray[np.integer], seed: int = 0) -> Fit:
    """Fits every family to the counts of pools, each by itself.

    Args:
        histograms: shape (B, n + 1): of each of B pools how many problems passed c of n samples.
        seed: of the randomness; the same gives the same fit.

    Raises:
        ValueError: a pool has no problem, or there are no samples.
    """
    counts = np.asarray(histograms, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[1] < 2 or not (counts.sum(axis=1) > 0).all():
        raise ValueError(f"expected counts of 0 to n passing samples, found shape {counts.shape}")
    rng = np.random.default_rng(seed)
    found = {family: posterior(family, counts, rng) for family in FAMILIES}
    logs = np.stack([evidence for _, evidence in found.values()])
    power = DECISIVE / (DECISIVE + counts.sum(axis=1))
    weights = np.exp(power * (logs - logs.max(axis=0)))
    weights /= weights.sum(axis=0)
    return Fit(
        counts,
        {family: points for family, (points, _) in found.items()},
        dict(zip(FAMILIES, weights, strict=True)),
        seed,
    )


def histogram(passing: NDArray[np.integer], samples: int) -> NDArray[np.int64]:
    """How many problems passed 0, ..., n samples: shape (1, n + 1) from their counts (P,)."""
    return np.bincount(passing, minlength=samples + 1)[None, :].astype(np.int64)


def _quantile(values: NDArray[Any], weights: Array, level: float) -> Array:
    """Each row's value below which weighs ``level``: (B, M) to (B,)."""
    order = np.argsort(values, axis=1)
    below = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    place = (below < level * below[:, -1:]).sum(axis=1, keepdims=True)
    place = np.take_along_axis(order, np.minimum(place, values.shape[1] - 1), axis=1)
    found: Array = np.take_along_axis(values, place, axis=1)[:, 0].astype(np.float64)
    return found


# What counts of passing samples say of a family's points: sequential Monte Carlo.
#
# N points are drawn from the prior; the likelihood then counts by degrees, each as large as leaves
# half the effective sample size, with resampling and Metropolis moves after each (Del Moral,
# Doucet, Jasra 2006, "Sequential Monte Carlo samplers"). A move goes along the difference of two
# other points (ter Braak 2006), so it has the posterior's own shape, narrow ridges included. The
# mean weights multiply to the probability of the counts under the family, by which families are
# weighed. Pools are worked on side by side.


#: N, points of a family, an even number; moves of each after a degree.
POINTS = 400
_MOVES = 4
#: Effective sample size that a degree leaves, as a share of N.
_LEAVES = 0.5
_BISECTIONS = 20


@dataclass(slots=True)
class _Cloud:
    """Pools' points: (B, N, d), their log likelihood and prior (B, N), and the degree (B,)."""

    points: Array
    likelihood: Array
    prior: Array
    degree: Array

    def at(self, pools: NDArray[np.bool_]) -> _Cloud:
        return _Cloud(
            self.points[pools], self.likelihood[pools], self.prior[pools], self.degree[pools]
        )


def posterior(family: Family, histograms: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Points as likely as the counts make them.

    Args:
        family: the family.
        histograms: shape (B, n + 1): of each of B pools how many problems passed c samples.
        rng: the randomness.

    Returns:
        Points of equal weight, shape (B, N, d), and the log probability of the counts under the
        family, shape (B,), up to a term that is the same for all families.
    """
    points = draw_prior(family, (len(histograms), POINTS), rng)
    found, evidence = np.empty_like(points), np.zeros(len(histograms))
    likelihood = log_likelihood(family, histograms, points)
    cloud = _Cloud(points, likelihood, log_prior(family, points), np.zeros(len(histograms)))
    left = np.arange(len(histograms))
    while len(left):
        step = _step(cloud)
        weights, top = _weights(cloud, step)
        evidence[left] += np.log(weights.mean(axis=1)) + top
        cloud.degree = cloud.degree + step
        _resample(cloud, weights, rng)
        for _ in range(_MOVES):
            _move(cloud, family, histograms[left], rng)
        going = cloud.degree < 1
        found[left[~going]] = cloud.points[~going]
        left, cloud = left[going], cloud.at(going)
    return found, evidence


def _weights(cloud: _Cloud, step: Array) -> tuple[Array, Array]:
    """Weights (B, N) of a further step of the degree over their largest, and its log (B,)."""
    logs = step[:, None] * cloud.likelihood
    top = logs.max(axis=1)
    return np.exp(logs - top[:, None]), top


def _step(cloud: _Cloud) -> Array:
    """How far each pool's degree may rise, shape (B,)."""

    def enough(step: Array) -> NDArray[np.bool_]:
        weights, _ = _weights(cloud, step)
        size = weights.sum(axis=1) ** 2 / (weights**2).sum(axis=1)
        held: NDArray[np.bool_] = size >= _LEAVES * weights.shape[1]
        return held

    rest = 1 - cloud.degree
    low, high, whole = np.zeros_like(rest), rest, enough(rest)
    for _ in range(0 if whole.all() else _BISECTIONS):
        middle = (low + high) / 2
        held = enough(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    found: Array = np.where(whole, rest, low)
    # a sum that only nearly reaches 1 would never end
    return np.where(cloud.degree + found > 1 - 1e-9, rest, found)


def _resample(cloud: _Cloud, weights: Array, rng: np.random.Generator) -> None:
    """Systematic resampling, in an order that says nothing."""
    pools, count = weights.shape
    ends = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    marks = (rng.random((pools, 1)) + np.arange(count)) / count
    chosen = np.stack([np.searchsorted(e, m) for e, m in zip(ends, marks, strict=True)])
    chosen = rng.permuted(chosen.clip(max=count - 1), axis=1)
    cloud.points = np.take_along_axis(cloud.points, chosen[..., None], axis=1)
    cloud.likelihood = np.take_along_axis(cloud.likelihood, chosen, axis=1)
    cloud.prior = np.take_along_axis(cloud.prior, chosen, axis=1)


def _move(cloud: _Cloud, family: Family, histograms: Array, rng: np.random.Generator) -> None:
    """One Metropolis move of each point, along differences within the other half."""
    pools, count, width = cloud.points.shape
    half, rows = count // 2, np.arange(pools)[:, None]
    for mine, others in ((slice(0, half), half), (slice(half, None), 0)):
        one, two = rng.integers(others, others + half, (2, pools, half))
        # long moves and short ones: ter Braak's scale, and less than half of it
        scale = np.where(rng.random((pools, half, 1)) < 0.5, 1, 0.4) * 2.38 / np.sqrt(2 * width)
        moved = cloud.points[:, mine] + scale * (cloud.points[rows, one] - cloud.points[rows, two])
        moved += rng.normal(0, 1e-3, moved.shape)
        likelihood, prior = log_likelihood(family, histograms, moved), log_prior(family, moved)
        gain = cloud.degree[:, None] * (likelihood - cloud.likelihood[:, mine])
        taken = np.log(rng.random((pools, half))) < gain + prior - cloud.prior[:, mine]
        for old, new in ((cloud.likelihood, likelihood), (cloud.prior, prior)):
            old[:, mine] = np.where(taken, new, old[:, mine])
        cloud.points[:, mine] = np.where(taken[..., None], moved, cloud.points[:, mine])
