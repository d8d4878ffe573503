"""How chances of being solved may be spread: beta, or normal in their logits.

Both have a place and a spread, real numbers. Towards chances of 0 the density of a beta
distribution falls as a power p^(alpha - 1), so that hard problems go on being solved however many
samples are drawn; that of a logit-normal distribution falls faster than any power. A few samples
do not show which of both is true.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit, gammaln, log_expit

Array = NDArray[np.float64]

#: Logits between which a logit-normal distribution is summed up, and the largest step between two.
_LOGITS = (-16.0, 12.0)
_STEP = 0.4
#: Of as many distributions at once as fit into a processor's cache.
_AT_ONCE = 256


class Distribution(Protocol):
    """A distribution of chances p, by a place and a spread.

    Attributes:
        prior: mean and standard deviation of the place and of the spread, normal a priori.
    """

    prior: tuple[tuple[float, float], tuple[float, float]]

    def passing(self, samples: int, place: Array, spread: Array, then_none: int = 0) -> Array:
        """P(c of n samples pass, and none of further ones): C(n, c) E[p^c (1 - p)^(n - c + k)].

        Args:
            samples: n.
            place: of any shape.
            spread: of the same shape.
            then_none: k, how many further samples.

        Returns:
            Shape (n + 1, *shape).
        """


class Beta:
    """Place: logit of the mean alpha / (alpha + beta). Spread: log of alpha + beta.

    A priori 95% of means lie within 2% and 98%, and of alpha + beta within 0.02 and 50.
    """

    prior = ((0.0, 2.0), (0.0, 2.0))

    def passing(self, samples: int, place: Array, spread: Array, then_none: int = 0) -> Array:
        """As of ``Distribution``: C(n, c) B(alpha + c, beta + n - c + k) / B(alpha, beta)."""
        alpha, beta = shapes(place, spread)
        found = np.exp(log_pmf(samples, alpha, beta))
        if then_none:
            c = np.arange(samples + 1, dtype=np.float64).reshape(-1, *[1] * place.ndim)
            left = beta + samples - c
            found = found * np.exp(betaln(alpha + c, left + then_none) - betaln(alpha + c, left))
        return found


class LogitNormal:
    """Place: mean of the logit. Spread: log of its standard deviation.

    A priori 95% of medians of p lie within 2% and 98%, and of standard deviations within 0.3 and
    5.6. Sums over equally spaced logits, close enough for counts of n samples, stand for integrals;
    a standard deviation below their step is taken to be the step.
    """

    prior = ((0.0, 2.0), (0.25, 0.75))

    def passing(self, samples: int, place: Array, spread: Array, then_none: int = 0) -> Array:
        """As of ``Distribution``."""
        logits, chances = _table(samples, then_none)
        step = logits[1] - logits[0]
        means = np.clip(place, *_LOGITS).reshape(-1, 1)
        widths = np.maximum(np.exp(np.clip(spread, -20.0, 20.0)), step).reshape(-1, 1)
        found = np.empty((means.size, samples + 1))
        for first in range(0, means.size, _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            mass = (logits - means[some]) / widths[some]
            mass *= mass
            mass *= -0.5
            np.exp(mass, out=mass)
            summed = mass @ chances
            found[some] = summed[:, :-1] / summed[:, -1:]
        return np.ascontiguousarray(found.T).reshape(samples + 1, *place.shape)


def shapes(place: Array, spread: Array) -> tuple[Array, Array]:
    """Alpha and beta of a beta distribution."""
    mean, size = expit(place), np.exp(spread)
    return np.maximum(mean * size, 1e-12), np.maximum((1 - mean) * size, 1e-12)


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


@lru_cache(maxsize=8)
def _table(samples: int, then_none: int) -> tuple[Array, Array]:
    """Logits (G,), and at each C(n, c) p^c (1 - p)^(n - c + k), with a last column of ones."""
    low, high = _LOGITS
    # counts of n samples tell logits apart that differ by 2 / sqrt(n)
    step = min(_STEP, 2 / np.sqrt(samples))
    logits = np.linspace(low, high, int(np.ceil((high - low) / step)) + 1)
    c = np.arange(samples + 1.0)
    ways = gammaln(samples + 1) - gammaln(c + 1) - gammaln(samples - c + 1)
    logs = ways + np.outer(log_expit(logits), c)
    logs += np.outer(log_expit(-logits), samples - c + then_none)
    return logits, np.column_stack([np.exp(logs), np.ones_like(logits)])
