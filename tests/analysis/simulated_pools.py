"""Simulated pools with known chances of passing and a few samples per problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from gapft_harness.analysis.bootstrap import Interval

Array = NDArray[np.float64]

#: Distributions of chances: one beta; one beta and problems that never pass; two betas; normal
#: logits; a mixture of normal logits, a beta, and problems that never pass.
KINDS = ("one", "zero", "two", "logit", "mixed")
SIZES = (200, 500, 1500)
#: Samples of each problem.
SAMPLES = 8
#: Seeds: coverage is reported on the first and checked by the tests on the second. (The estimator
#: was chosen on seed 1.)
REPORTED_ON, CHECKED_ON = 2, 3
#: Size of the population relative to the pool drawn from it.
_POPULATION = 20


@dataclass(frozen=True, slots=True)
class Pool:
    """Problems drawn from a population.

    Attributes:
        population: chances of all problems of the population.
        passing: number of passing samples of each drawn problem.
    """

    population: Array
    passing: NDArray[np.int64]

    def pass_at(self, k: int) -> float:
        """Return the population's Pass@k."""
        return float(np.mean(1 - (1 - self.population) ** k))


def draw_pools(kind: str, count: int, problems: int, seed: int) -> Iterator[Pool]:
    """Yield pools of a kind, each from its own population."""
    rng = np.random.default_rng([seed, *kind.encode(), problems])
    for _ in range(count):
        population = draw_chances(kind, _POPULATION * problems, rng)
        yield Pool(population, rng.binomial(SAMPLES, population[:problems]))


def is_inside(bounds: Interval, value: float) -> bool:
    """Return whether bounds contain a value."""
    return bounds.low <= value <= bounds.high


def draw_chances(kind: str, problems: int, rng: np.random.Generator) -> Array:
    """Draw each problem's chance, shape (P,).

    The first distribution has alpha within 0.1 and 1.5, where Pass@k still rises at k = 64: the
    share of problems that k samples miss falls about as k to the power of -alpha.
    """

    def drawn(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def normal(low: float, high: float) -> Array:
        return np.asarray(expit(rng.normal(rng.uniform(low, high), drawn(0.7, 2.5), problems)))

    def some(low: float, high: float) -> NDArray[np.bool_]:
        return np.asarray(rng.random(problems) < rng.uniform(low, high))

    if kind == "logit":
        return normal(-4, 0)
    if kind == "mixed":
        easy = rng.beta(drawn(0.5, 8), drawn(0.5, 8), problems)
        p = np.where(some(0.2, 0.8), easy, normal(-5, -1))
        return np.where(some(0, 0.2), 0.0, p)
    p = rng.beta(drawn(0.1, 1.5), drawn(0.3, 10), problems)
    if kind == "zero":
        p = np.where(some(0.05, 0.5), 0.0, p)
    if kind == "two":
        other = rng.beta(drawn(0.5, 8), drawn(0.5, 8), problems)
        p = np.where(some(0.2, 0.8), other, p)
    return p
