"""Bounds of Pass@k for more samples than were drawn.

Model: each problem has its own probability p of passing a sample, and samples are independent. The
distribution of p over problems is not assumed, since n samples per problem cannot identify it: the
bounds cover Pass@k of every distribution of p that is compatible with the numbers of problems that
passed 0, ..., n samples. They are computed by profiling Pearson's distance over all mixing
distributions (for the likelihood: Lindsay 1995, "Mixture Models: Theory, Geometry and
Applications").
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from gapft_harness.analysis.bootstrap import Interval

Array = NDArray[np.float64]

LEVEL = 0.95
#: Extrapolated numbers of samples, as multiples of those drawn. For larger multiples the bounds are
#: too wide to be useful; docs/gap.md has their widths.
MULTIPLES = (2, 4)
#: Grid points of p between 0 and 1, divided by the square root of the number of samples.
_CHANCES = 20
#: Weight of a constraint, relative to the most precise share.
_CONSTRAINT_WEIGHT = 1e3
#: Maximum number of steps of a fit, divided by the number of grid points; fits need far fewer.
_STEPS = 100


def bound_pass_at_k(passing: NDArray[np.integer], samples: int, k: int) -> Interval:
    """Bound Pass@k with 95% confidence.

    Args:
        passing: shape (P,), the number of passing samples of each problem.
        samples: n, the number of samples drawn for each problem.
        k: the number of samples that a verifier may choose from; more than n.

    Returns:
        The smallest and the largest Pass@k that are compatible with the counts.

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

    def estimate_errors(problems: Array) -> Array:
        """Estimate standard errors of shares; for rare counts, those of an upper bound."""
        return np.sqrt(np.maximum(problems, quantile)) / len(passing)

    shares = counts / len(passing)
    weights, _ = _fit_weights(shares, expected, estimate_errors(counts))
    widths = estimate_errors(expected @ weights * len(passing))
    weights, least = _fit_weights(shares, expected, widths)
    fitted = float(solved @ weights)

    def compute_excess(value: float) -> float:
        """Compute how far this Pass@k exceeds the confidence limit; negative if inside."""
        return _fit_weights(shares, expected, widths, (solved, value))[1] - least - quantile

    return Interval(*(_find_boundary(compute_excess, fitted, end) for end in (0.0, 1.0)))


def _find_boundary(compute_excess: Callable[[float], float], inside: float, end: float) -> float:
    """Find the limit of the confidence set between a value inside it and an end of the range."""
    if compute_excess(end) <= 0:
        return end
    return float(optimize.brentq(compute_excess, inside, end, xtol=1e-5))


def _fit_weights(
    shares: Array, expected: Array, widths: Array, fixed: tuple[Array, float] | None = None
) -> tuple[Array, float]:
    """Fit weights (J,) of the grid points to the observed shares; return Pearson's distance too.

    Args:
        shares: shape (n + 1,), the share of problems with 0, ..., n passing samples.
        expected: shape (n + 1, J), the expected shares at each grid point of p.
        widths: shape (n + 1,), standard errors of the shares.
        fixed: a constraint: a linear function of the weights, shape (J,), and its value.
    """
    exact = _CONSTRAINT_WEIGHT / widths.min()
    rows = [expected / widths[:, None], np.full((1, expected.shape[1]), exact)]
    values = [*(shares / widths), exact]
    if fixed is not None:
        rows.append(exact * fixed[0][None, :])
        values.append(exact * fixed[1])
    steps = _STEPS * expected.shape[1]
    weights, distance = optimize.nnls(np.concatenate(rows), np.array(values), maxiter=steps)
    return weights, float(distance**2)
