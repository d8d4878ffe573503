"""Verdicts on problems under one rule: of the deployment decode, and of K samples each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import partition
from gapft_harness.analysis.majority import compute_majority
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.analysis.redistribution import NO_ANSWER
from gapft_harness.core.records import State


@dataclass(frozen=True, slots=True)
class Verdicts:
    """P problems under one rule, in the reader's order: in a run's tables by id.

    Attributes:
        deployed: shape (P,), whether the deployment decode passed.
        passing: shape (P,), how many of the K samples passed: c of the Pass@k estimator.
        k: K.
        passed: shape (P, K), whether each sample passed; empty if only the counts are known.
        answers: shape (P, K), the code of each sample's answer, as ``encode_answers`` returns it;
            None if answers are unknown.
    """

    deployed: NDArray[np.bool_]
    passing: NDArray[np.int64]
    k: int
    passed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    answers: NDArray[np.int64] | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        deployed: NDArray[np.bool_],
        passed: NDArray[np.bool_],
        answers: NDArray[np.int64] | None = None,
    ) -> Verdicts:
        """Build verdicts from the outcome of each decode, and from samples' answers if known.

        Args:
            deployed: shape (P,).
            passed: shape (P, K).
            answers: see ``Verdicts``.
        """
        passing = passed.sum(axis=1, dtype=np.int64)
        return Verdicts(deployed, passing, passed.shape[1], passed, answers=answers)

    @property
    def states(self) -> NDArray[np.str_]:
        """Evidence states, shape (P,): ``G``, ``S`` or ``U`` (Equations 3 to 5)."""
        return partition(self.deployed, (self.passing > 0)[:, None])

    @property
    def pass_at_1(self) -> Fraction:
        """Pass@1, the exact share of the deployment decodes that passed."""
        return Fraction(int(self.deployed.sum()), self.deployed.size)

    @property
    def sizes(self) -> dict[State, int]:
        """Number of problems in each state."""
        states = self.states.tolist()
        return {"G": states.count("G"), "S": states.count("S"), "U": states.count("U")}

    def compute_pass_at(self, k: int) -> Fraction:
        """Compute unbiased Pass@k (Chen et al. 2021, Equation 1), the exact mean over problems."""
        return mean_pass_at_k(self.passing, self.k, k)

    @property
    def voting_fault(self) -> str:
        """The reason why there is no majority vote, in words; empty if there is one."""
        if self.answers is None or not (self.answers != NO_ANSWER).any():
            return "no answer was extracted from the samples"
        return ""

    def compute_majority(self) -> NDArray[np.float64] | None:
        """Compute each problem's maj@K (``analysis.majority``), (P,); None with a fault."""
        if self.answers is None or self.voting_fault:
            return None
        return compute_majority(self.answers, self.passed)

    def select_samples(self, first: int, k: int) -> Verdicts:
        """Select k samples from number ``first`` on: for nested budgets, or independent sets."""
        answers = None if self.answers is None else self.answers[:, first : first + k]
        passed = self.passed[:, first : first + k]
        return Verdicts.of(self.deployed, passed, answers)


def encode_answers(rows: Iterable[Sequence[str | None]]) -> NDArray[np.int64]:
    """Encode the answers of each problem's samples; equal texts of a problem have the same code.

    Args:
        rows: P problems with K answers each; None for a sample without an answer.

    Returns:
        Shape (P, K), with ``NO_ANSWER`` for a sample without an answer.
    """
    coded_rows = []
    for row in rows:
        codes = {text: code for code, text in enumerate(dict.fromkeys(row))} | {None: NO_ANSWER}
        coded_rows.append([codes[text] for text in row])
    return np.array(coded_rows, dtype=np.int64)
