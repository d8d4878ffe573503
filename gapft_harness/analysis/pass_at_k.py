"""Unbiased Pass@k from n samples per problem (Chen et al. 2021, Equation 1)."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


def pass_at_k(passing: NDArray[np.integer], samples: int, k: int) -> NDArray[np.float64]:
    """Estimate each problem's Pass@k without bias: 1 - C(n-c, k) / C(n, k).

    The ratio is the product over j < c of (n-k-j) / (n-j). It is computed as a sum of logarithms,
    which avoids overflow and preserves the precision of small values for n in the thousands.

    Args:
        passing: shape (P,), c, the number of passing samples of each problem.
        samples: n, the number of samples of every problem.
        k: the number of samples that a verifier may choose from, 1 <= k <= n.

    Returns:
        Shape (P,), fractions in [0, 1]; exactly 0 if c = 0, and 1 if c > n - k.

    Raises:
        ValueError: k is outside 1..n, or a count outside 0..n.
    """
    _check_counts(passing, samples, k)
    drawn_before = np.arange(samples, dtype=np.float64)
    fraction = np.minimum(k / (samples - drawn_before), 1.0)
    with np.errstate(divide="ignore"):
        log_miss = np.cumsum(np.log1p(-fraction))
    by_count = np.concatenate([[0.0], -np.expm1(log_miss)])
    estimates: NDArray[np.float64] = by_count[np.asarray(passing)]
    return estimates


def mean_pass_at_k(passing: NDArray[np.integer], samples: int, k: int) -> Fraction:
    """Compute the exact mean of ``pass_at_k`` over problems.

    Args:
        passing: shape (P,), P >= 1.
        samples: n.
        k: 1 <= k <= n.

    Raises:
        ValueError: k is outside 1..n, a count is outside 0..n, or there is no problem.
    """
    _check_counts(passing, samples, k)
    if not len(passing):
        raise ValueError("the mean Pass@k of no problems is undefined")
    histogram = np.bincount(passing, minlength=samples + 1)
    missed = sum(int(count) * math.comb(samples - c, k) for c, count in enumerate(histogram))
    return 1 - Fraction(missed, len(passing) * math.comb(samples, k))


def list_reported_k(samples: int) -> tuple[int, ...]:
    """List the k of a Pass@k curve: the powers of two up to n, and n itself."""
    powers = [2**exponent for exponent in range(samples.bit_length()) if 2**exponent <= samples]
    return tuple(sorted({*powers, samples}))


def _check_counts(passing: NDArray[np.integer], samples: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k must be within 1..{samples} (the samples drawn), found {k}")
    counts = np.asarray(passing)
    if counts.size and (counts.min() < 0 or counts.max() > samples):
        raise ValueError(
            f"passing samples must be within 0..{samples}, "
            f"found {int(counts.min())}..{int(counts.max())}"
        )


# The number of verified source samples that one decode of a trained model is worth.
#
# See the paper's Appendix B, Table 12.


def k_equivalent(passing: NDArray[np.integer], samples: int, pass_at_1: Fraction) -> int:
    """Find the largest k whose source Pass@k does not exceed ``pass_at_1``, compared exactly.

    Args:
        passing: shape (P,), the number of passing source samples of each audit problem.
        samples: K, the number of samples of every problem.
        pass_at_1: the condition's Pass@1, mean over its seeds.

    Returns:
        k; 0 (printed as ``<1``) if the condition is below the source's *sampled* Pass@1 (the
        source's greedy accuracy does not matter); K means K or more.
    """
    ks = range(1, samples + 1)
    return bisect_right(ks, pass_at_1, key=lambda k: mean_pass_at_k(passing, samples, k))


def format_k(k_eq: int) -> str:
    """Format a k equivalent as in the paper: ``<1`` for 0, else the number."""
    return str(k_eq) if k_eq else "<1"
