"""Bounds of Pass@k for more samples than were drawn.

A problem passes each sample with a chance p of its own, independently. How p is spread over
problems is not assumed, as n samples of each cannot show it: the bounds hold Pass@k of every
distribution of p that explains how many problems passed 0, ..., n samples. They are those of a
profile of Pearson's distance over all mixing distributions (of whose likelihood: Lindsay 1995,
"Mixture Models: Theory, Geometry and Applications").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from gapft_harness.analysis.bootstrap import Interval

Array = NDArray[np.float64]

LEVEL = 0.95
#: Extrapolated numbers of samples, as multiples of those drawn. Farther out the bounds say little;
#: docs/gap.md has their widths.
MULTIPLES = (2, 4)
#: Chances p between 0 and 1, times the root of the number of samples.
_CHANCES = 20
#: How exactly constraints hold, relative to the most exact share.
_EXACT = 1e3
#: Steps of a fit at most, times the number of chances; far more than it takes.
_STEPS = 100


def bound_pass_at_k(passing: NDArray[np.integer], samples: int, k: int) -> Interval:
    """Bound Pass@k with 95% confidence.

    Args:
        passing: shape (P,), how many of its samples each problem passed.
        samples: n, how many were drawn of each.
        k: how many samples a verifier may choose from; more than n.

    Returns:
        The least and the greatest Pass@k that the counts leave possible.

    Raises:
        ValueError: there is no problem or no sample, or k is not above n.
    """
    if not len(passing) or not 0 < samples < k:
        raise ValueError(f"expected problems and 0 < n < k, found {len(passing)}, {samples}, {k}")
    counts = np.bincount(passing, minlength=samples + 1).astype(np.float64)
    chances = np.sin(np.linspace(0, np.pi / 2, int(_CHANCES * np.sqrt(samples)) + 1)) ** 2
    expected = np.asarray(stats.binom.pmf(np.arange(samples + 1)[:, None], samples, chances))
    solved = 1 - (1 - chances) ** k
    quantile = float(stats.chi2.ppf(LEVEL, 1))

    def errors(problems: Array) -> Array:
        """Standard errors of the counts' shares; rare counts have those of a bound on them."""
        return np.sqrt(np.maximum(problems, quantile)) / len(passing)

    shares = counts / len(passing)
    weights, _ = _fit(shares, expected, errors(counts))
    widths = errors(expected @ weights * len(passing))
    weights, least = _fit(shares, expected, widths)
    fitted = float(solved @ weights)

    def excess(value: float) -> float:
        """How far Pass@k of this value is from being possible; negative if it is possible."""
        return _fit(shares, expected, widths, (solved, value))[1] - least - quantile

    return Interval(*(_boundary(excess, fitted, end) for end in (0.0, 1.0)))


def _boundary(excess: Callable[[float], float], inside: float, end: float) -> float:
    """Where what is possible ends, between a possible value and an end of the range."""
    if excess(end) <= 0:
        return end
    return float(optimize.brentq(excess, inside, end, xtol=1e-5))


def _fit(
    shares: Array, expected: Array, widths: Array, fixed: tuple[Array, float] | None = None
) -> tuple[Array, float]:
    """Weights (J,) of chances that are nearest to the shares (n + 1,), and Pearson's distance.

    Args:
        shares: of problems by how many samples they passed.
        expected: shape (n + 1, J), these shares under each chance.
        widths: standard errors of the shares.
        fixed: a linear function of the weights and the value that it must have.
    """
    exact = _EXACT / widths.min()
    rows = [expected / widths[:, None], np.full((1, expected.shape[1]), exact)]
    values = [*(shares / widths), exact]
    if fixed is not None:
        rows.append(exact * fixed[0][None, :])
        values.append(exact * fixed[1])
    steps = _STEPS * expected.shape[1]
    weights, distance = optimize.nnls(np.concatenate(rows), np.array(values), maxiter=steps)
    return weights, float(distance**2)
