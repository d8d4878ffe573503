"""How problems' chances of being solved are spread: beta-binomial mixtures of three families.

A problem passes each of n samples with a chance p of its own, independently, so that it passes c
of them with probability C(n, c) p^c (1 - p)^(n - c). Over problems, p follows a beta distribution
(family ``one``), is 0 for a share of them and beta for the others (``zero``), or follows one of two
beta distributions (``two``).

A point of a family is an array of real numbers: of each beta distribution the logit of its mean
m = alpha / (alpha + beta) and the log of alpha + beta, then the logit of a share: of the problems
with p = 0, or of the second distribution. A priori these are independent: logits of means and logs
normal around 0 with standard deviation 2 (means from 2% to 98%, alpha + beta from 0.02 to 50 hold
95%), shares uniform.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit

Array = NDArray[np.float64]
Family = Literal["one", "zero", "two"]
FAMILIES: tuple[Family, ...] = get_args(Family)

_WIDTH = 2.0
#: Nothing is rarer: keeps logarithms finite.
_LEAST = 1e-300


def log_pmf(samples: int, alpha: Array, beta: Array) -> Array:
    """Log of the beta-binomial probabilities of 0, ..., n passing samples.

    C(n, c) B(alpha + c, beta + n - c) / B(alpha, beta) as rising factorials over factorials,
    [(alpha)_c / c!] [(beta)_(n-c) / (n-c)!] / [(alpha + beta)_n / n!].

    Args:
        samples: n.
        alpha: of any shape, above 0.
        beta: of the same shape.

    Returns:
        Shape (n + 1, *shape).
    """
    steps = np.arange(samples, dtype=np.float64).reshape(-1, *[1] * alpha.ndim)

    def rising(start: Array) -> Array:
        found = np.zeros((samples + 1, *start.shape))
        np.cumsum(np.log((start + steps) / (1 + steps)), axis=0, out=found[1:])
        return found

    found: Array = rising(alpha) + rising(beta)[::-1] - rising(alpha + beta)[-1]
    return found


def shapes(points: Array) -> list[tuple[Array, Array]]:
    """Alpha and beta of each beta distribution of points (..., d)."""
    means, sizes = expit(points[..., 0 : points.shape[-1] // 2 * 2]), np.exp(points)
    return [
        (
            np.maximum(means[..., i] * sizes[..., i + 1], 1e-12),
            np.maximum((1 - means[..., i]) * sizes[..., i + 1], 1e-12),
        )
        for i in range(0, points.shape[-1] // 2 * 2, 2)
    ]


def _weighted(family: Family, points: Array, first: Array, second: Array | None) -> list[Array]:
    """Two components times their shares; of family ``one`` the only one."""
    if family == "one" or second is None:
        return [first]
    share = expit(points[..., -1])
    return [first * (1 - share), second * share]


def _components(family: Family, samples: int, points: Array) -> list[Array]:
    """Probability of each count together with each component: shapes (n + 1, ...)."""
    each = [np.exp(log_pmf(samples, *shape)) for shape in shapes(points)]
    if family == "zero":
        never = np.zeros_like(each[0])
        never[0] = 1.0
        each.append(never)
    return _weighted(family, points, each[0], each[1] if len(each) > 1 else None)


def log_likelihood(family: Family, histograms: Array, points: Array) -> Array:
    """Log of the probability of problems' counts, up to a term that no point changes.

    Args:
        family: the family.
        histograms: shape (B, n + 1): of each of B pools how many problems passed c samples.
        points: shape (B, N, d), N points for each.

    Returns:
        Shape (B, N).
    """
    chances = sum(_components(family, histograms.shape[1] - 1, points))
    found: Array = np.einsum("cbn,bc->bn", np.log(np.maximum(chances, _LEAST)), histograms)
    return found


def log_prior(family: Family, points: Array) -> Array:
    """Log density of the prior up to a constant: (..., d) to (...)."""
    real = points[..., : points.shape[-1] // 2 * 2]
    found: Array = -0.5 * (real**2).sum(axis=-1) / _WIDTH**2
    if family != "one":  # the logit of a uniform share is logistic
        size = np.abs(points[..., -1])
        found = found - size - 2 * np.log1p(np.exp(-size))
    return found


def draw_prior(family: Family, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Points (*shape, d) from the prior."""
    normal = rng.normal(0, _WIDTH, (*shape, 4 if family == "two" else 2))
    if family == "one":
        return normal
    return np.concatenate([normal, rng.logistic(size=(*shape, 1))], axis=-1)


def missed(family: Family, samples: int, points: Array, k: int) -> Array:
    """E[(1 - p)^k | c]: the chance that k further samples miss a problem that passed c of n.

    Given c and a beta component, p follows Beta(alpha + c, beta + n - c), so the chance is
    B(alpha + c, beta + n - c + k) / B(alpha + c, beta + n - c); components are weighed by how
    likely each is, given c.

    Args:
        family: the family.
        samples: n.
        points: shape (..., d).
        k: how many further samples.

    Returns:
        Shape (n + 1, ...).
    """
    chances = _components(family, samples, points)
    counts = np.arange(samples + 1, dtype=np.float64).reshape(-1, *[1] * (points.ndim - 1))
    each = []
    for alpha, beta in shapes(points):
        a, b = alpha + counts, beta + samples - counts
        each.append(np.exp(betaln(a, b + k) - betaln(a, b)))
    if family == "zero":
        each.append(np.ones_like(each[0]))
    total = np.maximum(sum(chances), _LEAST)
    found: Array = sum(c * m for c, m in zip(chances, each, strict=True)) / total
    return found
