"""How many verified samples of the source one decode of a trained model is worth.

Appendix of the paper, table "Source Pass@K Reached by One Decode".
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.pass_at_k import mean_pass_at_k


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
