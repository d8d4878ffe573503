"""Compute Pass@k, states and the bound p_S from verdicts on one greedy decode and K samples.

States as in Section 3.2 of the paper (Equations 3 to 5); unbiased Pass@k (Chen et al. 2021,
Equation 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.estimate import Estimate, estimate_mean, estimate_share
from gapft_harness.analysis.pass_at_k import pass_at_k
from gapft_harness.analysis.resampling import resample_means
from gapft_harness.core.records import State
from gapft_harness.core.streams import Stream
from gapft_harness.outcomes.verdicts import Verdicts

#: Number of bootstrap replicates for every interval.
REPLICATES = 2_000
_SEED = 0


@dataclass(frozen=True, slots=True)
class GapFindings:
    """The findings under one filter, or for one split.

    Attributes:
        greedy: accuracy of the greedy decode.
        pass_at: Pass@k for k = 1, ..., K.
        gains: Pass@k minus Pass@1 for the same k; the last is the gap.
        verdicts: the verdicts.
        shares: shares of G, S and U; that of S is p_S, the largest gain from correcting S.
        errors: number of responses that neither passed nor failed; they count as not passed.
        majority: maj@K; None if answers cannot be compared.
        majority_gain: maj@K minus Pass@1; None without ``majority``.
    """

    greedy: Estimate
    pass_at: tuple[Estimate, ...]
    gains: tuple[Estimate, ...]
    verdicts: Verdicts
    shares: dict[State, Estimate]
    errors: int
    majority: Estimate | None = None
    majority_gain: Estimate | None = None


def compute_findings(verdicts: Verdicts, errors: int = 0) -> GapFindings:
    """Compute all findings from verdicts.

    Args:
        verdicts: verdicts of one filter or one split.
        errors: number of responses that neither passed nor failed.
    """
    states, k = verdicts.states, verdicts.k
    ks = range(1, k + 1)
    estimates = [pass_at_k(verdicts.passing, k, term) for term in ks]
    exact = [verdicts.compute_pass_at(term) for term in ks]
    total = len(states)
    masks = [verdicts.deployed, *(states == state for state in "GSU")]
    columns = [mask.astype(float) for mask in masks]
    values: list[Fraction | float] = [
        verdicts.pass_at_1,
        *(Fraction(round(column.sum()), total) for column in columns[1:]),
    ]
    columns += [*estimates, *(term - estimates[0] for term in estimates)]
    values += [*exact, *(term - exact[0] for term in exact)]
    means = _estimate_means(values, columns)
    shares = [_widen_share(mean, total) for mean in means[: 4 + k]]
    majority = majority_gain = None
    votes = verdicts.compute_majority()
    if votes is not None:
        voted = [votes, votes - estimates[0]]
        majority, majority_gain = _estimate_means([column.mean() for column in voted], voted)
        majority = _widen_share(majority, total)
    return GapFindings(
        greedy=shares[0],
        pass_at=tuple(shares[4:]),
        gains=tuple(means[4 + k :]),
        verdicts=verdicts,
        shares={"G": shares[1], "S": shares[2], "U": shares[3]},
        errors=errors,
        majority=majority,
        majority_gain=majority_gain,
    )


def _widen_share(estimate: Estimate, problems: int) -> Estimate:
    """Use Wilson's interval for none or all of the problems: resampling shows no variation."""
    return estimate_share(estimate.value, problems) if estimate.value in (0, 1) else estimate


def _estimate_means(
    values: Sequence[Fraction | float], columns: Sequence[NDArray[np.float64]]
) -> list[Estimate]:
    """Estimate the columns' means from the same resamples; without interval for one problem.

    Args:
        values: the means.
        columns: each of shape (problems,).
    """
    stacked = np.stack(columns, axis=1)
    problems = len(stacked)
    if problems == 1:
        return [Estimate(value) for value in values]
    means = resample_means(
        stacked, np.arange(problems), replicates=REPLICATES, stream=Stream(_SEED, "gap")
    )
    return [estimate_mean(value, column) for value, column in zip(values, means.T, strict=True)]
