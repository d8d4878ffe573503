"""How problems' chances of being solved are spread: mixtures, of six families.

A problem passes each of n samples with a chance p of its own, independently, so that it passes c
of them with probability C(n, c) p^c (1 - p)^(n - c). Over problems, p follows one distribution
(``one``), is 0 for a share of them and follows it for the others (``zero``), or follows one of two
(``two``); distributions are beta, or logit-normal.

A point of a family is an array of real numbers: place and spread of each distribution
(``distributions``), then the logit of a share: of the problems with p = 0, or of the second
distribution. A priori these are independent, and shares uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats
from scipy.special import betaln, expit, gammaln, log_expit

# How chances of being solved may be spread: beta, or normal in their logits.
#
# Both have a place and a spread, real numbers. Towards chances of 0 the density of a beta
# distribution falls as a power p^(alpha - 1), so that hard problems go on being solved however many
# samples are drawn; that of a logit-normal distribution falls faster than any power. A few samples
# do not show which of both is true.


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


#: Nothing is rarer: keeps logarithms finite.
LEAST = 1e-300


class Family(NamedTuple):
    """A distribution, and whether chances follow one, one and a mass at zero, or two."""

    shape: str
    parts: str

    @property
    def distribution(self) -> Distribution:
        """The one that it is made of."""
        return SHAPES[self.shape]

    @property
    def copies(self) -> int:
        """How many distributions."""
        return 2 if self.parts == "two" else 1


SHAPES: dict[str, Distribution] = {"beta": Beta(), "logit_normal": LogitNormal()}
PARTS = ("one", "zero", "two")
FAMILIES = tuple(Family(shape, parts) for shape in SHAPES for parts in PARTS)


def chances(family: Family, samples: int, points: Array, then_none: int = 0) -> Array:
    """P(c of n samples pass, and then none of k further ones), for c = 0, ..., n.

    Args:
        family: the family.
        samples: n.
        points: shape (..., d).
        then_none: k.

    Returns:
        Shape (n + 1, ...).
    """
    each = [
        family.distribution.passing(samples, points[..., i], points[..., i + 1], then_none)
        for i in range(0, 2 * family.copies, 2)
    ]
    if family.parts == "zero":
        never = np.zeros_like(each[0])
        never[0] = 1.0
        each.append(never)
    if len(each) == 1:
        return each[0]
    share = expit(points[..., -1])
    return each[0] * (1 - share) + each[1] * share


def log_likelihood(family: Family, histograms: Array, points: Array) -> Array:
    """Log of the probability of problems' counts, up to a term that no point changes.

    Args:
        family: the family.
        histograms: shape (B, n + 1): of each of B pools how many problems passed c samples.
        points: shape (B, N, d), N points for each.

    Returns:
        Shape (B, N).
    """
    logs = np.log(np.maximum(chances(family, histograms.shape[1] - 1, points), LEAST))
    found: Array = np.einsum("cbn,bc->bn", logs, histograms)
    return found


def log_prior(family: Family, points: Array) -> Array:
    """Log density of the prior up to a constant: (..., d) to (...)."""
    means, widths = np.array(family.distribution.prior * family.copies).T
    real = (points[..., : 2 * family.copies] - means) / widths
    found: Array = -0.5 * (real**2).sum(axis=-1)
    if family.parts != "one":  # the logit of a uniform share is logistic
        size = np.abs(points[..., -1])
        found = found - size - 2 * np.log1p(np.exp(-size))
    return found


def draw_prior(family: Family, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Points (*shape, d) from the prior."""
    means, widths = np.array(family.distribution.prior * family.copies).T
    normal = rng.normal(means, widths, (*shape, 2 * family.copies))
    if family.parts == "one":
        return normal
    return np.concatenate([normal, rng.logistic(size=(*shape, 1))], axis=-1)


def missed(family: Family, samples: int, points: Array, k: int) -> Array:
    """E[(1 - p)^k | c]: the chance that k further samples miss a problem that passed c of n.

    Args:
        family: the family.
        samples: n.
        points: shape (..., d).
        k: how many further samples.

    Returns:
        Shape (n + 1, ...).
    """
    seen = np.maximum(chances(family, samples, points), LEAST)
    return np.minimum(chances(family, samples, points, k) / seen, 1.0)


#: Problems that a cell of the test is expected to have at least (Cochran 1954).
CELL = 5.0
#: A fit whose p value lies below is warned of.
REJECTED = 0.05


@dataclass(frozen=True, slots=True)
class OneComponent:
    """One beta-binomial distribution, as likely as it can make the counts.

    Attributes:
        alpha: its first shape.
        beta: its second.
        cells: into how many cells the counts 0 to n were put for the test.
        p_value: of Pearson's chi-squared test with cells - 3 degrees of freedom; None where that
            is 0 or less.
    """

    alpha: float
    beta: float
    cells: int
    p_value: float | None

    @property
    def rejected(self) -> bool:
        """Whether the test says that it does not fit."""
        return self.p_value is not None and self.p_value < REJECTED


def one_component(counts: NDArray[np.integer]) -> OneComponent:
    """Fits one component and tests it.

    Neighbouring counts are put together, from 0 on, until a cell is expected to have ``CELL``
    problems. Two parameters are estimated, from the counts apart rather than the cells, so the
    test's true level lies between those of cells - 3 and cells - 1 degrees of freedom (Chernoff
    and Lehmann 1954): it warns rather too often than too seldom.

    Args:
        counts: shape (n + 1,), how many problems passed 0, ..., n samples.
    """
    samples, problems = len(counts) - 1, int(counts.sum())

    def logs(point: NDArray[np.float64]) -> NDArray[np.float64]:
        mean, size = expit(point[0]), np.exp(point[1])
        return log_pmf(samples, np.asarray(mean * size), np.asarray((1 - mean) * size))

    found = optimize.minimize(
        lambda point, *_: -float(counts @ logs(point)),
        x0=np.zeros(2),
        method="Nelder-Mead",
        bounds=[(-12.0, 12.0), (-12.0, 12.0)],
        tol=1e-9,
    )
    expected = problems * np.exp(logs(found.x))
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, due in zip(counts, expected, strict=True):
        if cells[-1][1] >= CELL:
            cells.append([0.0, 0.0])
        cells[-1][0] += float(seen)
        cells[-1][1] += float(due)
    if cells[-1][1] < CELL and len(cells) > 1:
        last = cells.pop()
        cells[-1] = [a + b for a, b in zip(cells[-1], last, strict=True)]
    table = np.array(cells)
    p_value = None
    if len(cells) > 3:
        distance = float((((table[:, 0] - table[:, 1]) ** 2) / table[:, 1]).sum())
        p_value = float(stats.chi2.sf(distance, len(cells) - 3))
    mean, size = float(expit(found.x[0])), float(np.exp(found.x[1]))
    return OneComponent(mean * size, (1 - mean) * size, len(cells), p_value)
