"""Pools of problems whose chances are known: none of it is drawn from the forecast's prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]

#: One beta distribution; that and problems that never pass; two beta distributions; normal logits.
KINDS = ("one", "zero", "two", "logit")
#: Normal logits for some problems, a beta distribution for others, and some that never pass: none
#: of the forecast's families.
UNLIKE = "mixed"
SIZES = (200, 500, 1500)
#: Seeds, fixed before any pool was drawn from them: the forecast's coverage is reported on the
#: first, and the suite checks it on the second. (Its method was chosen on seed 1.)
REPORTED_ON, CHECKED_ON = 2, 3


def pools(kind: str, count: int, problems: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Simulated pools of a kind, searched with 8 samples of each problem.

    Returns:
        Their true Pass@64, shape (B,), and how many problems passed c of 8 samples, shape (B, 9).
    """
    rng = np.random.default_rng([seed, *kind.encode(), problems])
    p = chances(kind, count, problems, rng)
    return (1 - (1 - p) ** 64).mean(axis=1), histograms(p, 8, rng)


def chances(kind: str, count: int, problems: int, rng: np.random.Generator) -> Array:
    """Each problem's chance, shape (B, P), every pool with parameters of its own.

    The first distribution has alpha within 0.1 and 1.5, where Pass@k still rises at k = 64: the
    share of problems that k samples miss falls about as k to the power of -alpha.
    """

    def drawn(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def normal(low: float, high: float) -> Array:
        return np.asarray(expit(rng.normal(rng.uniform(low, high), drawn(0.7, 2.5), problems)))

    def some(low: float, high: float) -> NDArray[np.bool_]:
        return np.asarray(rng.random(problems) < rng.uniform(low, high))

    found = []
    for _ in range(count):
        if kind == "logit":
            p = normal(-4, 0)
        elif kind == UNLIKE:
            easy = rng.beta(drawn(0.5, 8), drawn(0.5, 8), problems)
            p = np.where(some(0.2, 0.8), easy, normal(-5, -1))
            p = np.where(some(0, 0.2), 0.0, p)
        else:
            p = rng.beta(drawn(0.1, 1.5), drawn(0.3, 10), problems)
        if kind == "zero":
            p = np.where(some(0.05, 0.5), 0.0, p)
        if kind == "two":
            other = rng.beta(drawn(0.5, 8), drawn(0.5, 8), problems)
            p = np.where(some(0.2, 0.8), other, p)
        found.append(p)
    return np.array(found)


def histograms(p: Array, samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many problems passed 0, ..., n samples, shape (B, n + 1)."""
    passing = rng.binomial(samples, p)
    return np.stack([np.bincount(row, minlength=samples + 1) for row in passing])
