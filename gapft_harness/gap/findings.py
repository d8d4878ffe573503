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

from gapft_harness.analysis.bootstrap import Interval, compute_interval, resample_means
from gapft_harness.analysis.pass_at_k import pass_at_k
from gapft_harness.core.records import State
from gapft_harness.core.streams import Stream
from gapft_harness.outcomes.verdicts import Verdicts

#: Number of bootstrap replicates for every interval.
REPLICATES = 2_000
_SEED = 0


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """A share of the problems, or a difference of two shares, with its 95% interval.

    Attributes:
        value: the exact value; of maj@K a float.
        interval: 95% interval over problems; None with one problem.
    """

    value: Fraction | float
    interval: Interval | None


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

    greedy: ShareEstimate
    pass_at: tuple[ShareEstimate, ...]
    gains: tuple[ShareEstimate, ...]
    verdicts: Verdicts
    shares: dict[State, ShareEstimate]
    errors: int
    majority: ShareEstimate | None = None
    majority_gain: ShareEstimate | None = None


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
    votes = verdicts.compute_majority()
    voted = [] if votes is None else [votes, votes - estimates[0]]
    values += [float(column.mean()) for column in voted]
    intervals = [*_compute_intervals(columns), *(_compute_intervals(voted) if voted else ())]
    shares = [
        ShareEstimate(value, interval) for value, interval in zip(values, intervals, strict=True)
    ]
    before_votes = len(shares) - len(voted)
    return GapFindings(
        greedy=shares[0],
        pass_at=tuple(shares[4 : 4 + len(ks)]),
        gains=tuple(shares[4 + len(ks) : before_votes]),
        verdicts=verdicts,
        shares={"G": shares[1], "S": shares[2], "U": shares[3]},
        errors=errors,
        majority=shares[-2] if voted else None,
        majority_gain=shares[-1] if voted else None,
    )


def _compute_intervals(columns: Sequence[NDArray[np.float64]]) -> list[Interval | None]:
    """Compute each column's 95% percentile interval of the mean, from the same resamples.

    Args:
        columns: each of shape (problems,).
    """
    stacked = np.stack(columns, axis=1)
    if len(stacked) == 1:
        return [None] * len(columns)
    means = resample_means(
        stacked, np.arange(len(stacked)), replicates=REPLICATES, stream=Stream(_SEED, "gap")
    )
    return [compute_interval(column) for column in means.T]
