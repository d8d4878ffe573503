"""Verdicts on problems under one rule: of a greedy decode, and of K samples each."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import partition
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.core.records import State


@dataclass(frozen=True, slots=True)
class Verdicts:
    """P problems under one rule, in the reader's order: in a run's tables by id.

    Attributes:
        greedy: shape (P,), whether the greedy decode passed.
        passing: shape (P,), how many of the K samples passed: c of the Pass@k estimator.
        k: K.
        passed: shape (P, K), whether each sample passed; empty if only the counts are known.
    """

    greedy: NDArray[np.bool_]
    passing: NDArray[np.int64]
    k: int
    passed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))

    @classmethod
    def of(cls, greedy: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Verdicts:
        """Build verdicts from the outcome of each sample."""
        return Verdicts(greedy, passed.sum(axis=1, dtype=np.int64), passed.shape[1], passed)

    @property
    def states(self) -> NDArray[np.str_]:
        """Evidence states, shape (P,): ``G``, ``S`` or ``U`` (Equations 3 to 5)."""
        return partition(self.greedy, (self.passing > 0)[:, None])

    @property
    def sizes(self) -> dict[State, int]:
        """Number of problems in each state."""
        states = self.states.tolist()
        return {"G": states.count("G"), "S": states.count("S"), "U": states.count("U")}

    def compute_pass_at(self, k: int) -> Fraction:
        """Compute unbiased Pass@k (Chen et al. 2021, Equation 1), the exact mean over problems."""
        return mean_pass_at_k(self.passing, self.k, k)

    def select_samples(self, first: int, k: int) -> Verdicts:
        """Select k samples from number ``first`` on: for nested budgets, or independent sets."""
        return Verdicts.of(self.greedy, self.passed[:, first : first + k])
