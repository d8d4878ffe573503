"""Verdicts on problems under one rule: of a greedy decode, and of K samples of each."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import partition
from gapft_harness.analysis.pass_at_k import mean_pass_at_k


@dataclass(frozen=True, slots=True)
class Verdicts:
    """P problems under one rule, in an order that whoever reads them gives.

    Attributes:
        greedy: shape (P,), whether the greedy decode passed.
        passing: shape (P,), how many of the K samples passed: c of the Pass@k estimator.
        k: K.
    """

    greedy: NDArray[np.bool_]
    passing: NDArray[np.int64]
    k: int

    @property
    def states(self) -> NDArray[np.str_]:
        """Shape (P,), ``G``, ``S`` or ``U`` (Equations 3 to 5)."""
        return partition(self.greedy, (self.passing > 0)[:, None])

    def pass_at(self, k: int) -> Fraction:
        """Pass@k without bias (Chen et al. 2021, Equation 1), the exact mean over problems."""
        return mean_pass_at_k(self.passing, self.k, k)
