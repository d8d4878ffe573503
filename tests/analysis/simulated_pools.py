"""Pools of problems whose chances are known: none of it is drawn from the forecast's prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: One beta distribution; that and problems that never pass; two beta distributions.
KINDS = ("one", "zero", "two")


def chances(kind: str, pools: int, problems: int, rng: np.random.Generator) -> Array:
    """Each problem's chance, shape (B, P), every pool with parameters of its own.

    The first distribution has alpha within 0.1 and 1.5, where Pass@k still rises at k = 64: the
    share of problems that k samples miss falls about as k to the power of -alpha.
    """

    def drawn(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    found = []
    for _ in range(pools):
        p = rng.beta(drawn(0.1, 1.5), drawn(0.3, 10), problems)
        if kind == "zero":
            p = np.where(rng.random(problems) < rng.uniform(0.05, 0.5), 0.0, p)
        if kind == "two":
            other = rng.beta(drawn(0.5, 8), drawn(0.5, 8), problems)
            p = np.where(rng.random(problems) < rng.uniform(0.2, 0.8), other, p)
        found.append(p)
    return np.array(found)


def histograms(p: Array, samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """How many problems passed 0, ..., n samples, shape (B, n + 1)."""
    passing = rng.binomial(samples, p)
    return np.stack([np.bincount(row, minlength=samples + 1) for row in passing])
