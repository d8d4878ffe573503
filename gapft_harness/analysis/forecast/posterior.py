"""What counts of passing samples say of a family's points: sequential Monte Carlo.

N points are drawn from the prior; the likelihood then counts by degrees, each as large as leaves
half the effective sample size, with resampling and Metropolis moves after each (Del Moral, Doucet,
Jasra 2006, "Sequential Monte Carlo samplers"). A move goes along the difference of two other points
(ter Braak 2006), so it has the posterior's own shape, narrow ridges included. The mean weights
multiply to the probability of the counts under the family, by which families are weighed. Pools
are worked on side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.forecast.distributions import Array
from gapft_harness.analysis.forecast.mixtures import (
    Family,
    draw_prior,
    log_likelihood,
    log_prior,
)

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
