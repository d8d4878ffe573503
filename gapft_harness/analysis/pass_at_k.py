"""Unbiased Pass@k from n samples a problem (Chen et al. 2021, Equation 1)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


def pass_at_k(passing: NDArray[np.integer], samples: int, k: int) -> NDArray[np.float64]:
    """Estimates each problem's Pass@k without bias: 1 - C(n-c, k) / C(n, k).

    The ratio is the product over j < c of (n-k-j) / (n-j); it is summed as logarithms, so that
    nothing overflows and small values keep their digits for n in the thousands.

    Args:
        passing: shape (P,), c, how many of a problem's samples passed.
        samples: n, samples of every problem.
        k: how many of them a verifier may choose from, 1 <= k <= n.

    Returns:
        Shape (P,), fractions in [0, 1]; exactly 0 where c = 0 and 1 where c > n - k.

    Raises:
        ValueError: k is outside 1..n, or a count outside 0..n.
    """
    _check(passing, samples, k)
    drawn_before = np.arange(samples, dtype=np.float64)
    fraction = np.minimum(k / (samples - drawn_before), 1.0)
    with np.errstate(divide="ignore"):
        log_miss = np.cumsum(np.log1p(-fraction))
    by_count = np.concatenate([[0.0], -np.expm1(log_miss)])
    estimates: NDArray[np.float64] = by_count[np.asarray(passing)]
    return estimates


def mean_pass_at_k(passing: NDArray[np.integer], samples: int, k: int) -> Fraction:
    """The mean of ``pass_at_k`` over problems, exact.

    Args:
        passing: shape (P,), P >= 1.
        samples: n.
        k: 1 <= k <= n.

    Raises:
        ValueError: as ``pass_at_k``, or there is no problem.
    """
    _check(passing, samples, k)
    if not len(passing):
        raise ValueError("the mean Pass@k of no problems is undefined")
    histogram = np.bincount(passing, minlength=samples + 1)
    missed = sum(int(count) * math.comb(samples - c, k) for c, count in enumerate(histogram))
    return 1 - Fraction(missed, len(passing) * math.comb(samples, k))


def reported_k(samples: int) -> tuple[int, ...]:
    """The k of a Pass@k curve: the powers of two up to n, and n itself."""
    powers = [2**exponent for exponent in range(samples.bit_length()) if 2**exponent <= samples]
    return tuple(sorted({*powers, samples}))


def _check(passing: NDArray[np.integer], samples: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k must be within 1..{samples} (the samples drawn), found {k}")
    counts = np.asarray(passing)
    if counts.size and (counts.min() < 0 or counts.max() > samples):
        raise ValueError(
            f"passing samples must be within 0..{samples}, "
            f"found {int(counts.min())}..{int(counts.max())}"
        )


# How many verified samples of the source one decode of a trained model is worth.
#
# Appendix of the paper, table "Source Pass@K Reached by One Decode".


def k_equivalent(passing: NDArray[np.integer], samples: int, pass_at_1: Fraction) -> int:
    """The largest k whose source Pass@k does not exceed ``pass_at_1``, compared exactly.

    Args:
        passing: shape (P,), how many of each audit problem's source samples passed.
        samples: K, samples of every problem.
        pass_at_1: the condition's Pass@1, mean over its seeds.

    Returns:
        0 where the condition is below the source's *sampled* Pass@1 (written ``<1``; the source's
        greedy accuracy plays no part); K means at least K.
    """
    below, above = 0, samples + 1
    while above - below > 1:
        k = (below + above) // 2
        if mean_pass_at_k(passing, samples, k) <= pass_at_1:
            below = k
        else:
            above = k
    return below


def k_label(k_eq: int) -> str:
    """``<1`` or the number, as the paper prints it."""
    return str(k_eq) if k_eq else "<1"
