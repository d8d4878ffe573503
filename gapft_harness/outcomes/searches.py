"""Compute Pass@k, states and the bound p_S from verdicts on one greedy decode and K samples.

States as in Section 3.2 of the paper (Equations 3 to 5); unbiased Pass@k (Chen et al. 2021,
Equation 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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
class Endings:
    """Counts of responses that say nothing about the model's ability.

    Attributes:
        responses: the number of all responses.
        cut: those that ended at the length limit.
        unanswered: those without a readable answer; None where no answers are read.
        errors: those that neither passed nor failed; they count as not passed.
    """

    responses: int
    cut: int = 0
    unanswered: int | None = None
    errors: int = 0


@dataclass(frozen=True, slots=True)
class SearchFindings:
    """The findings under one filter, or for one split.

    Attributes:
        greedy: accuracy of the greedy decode.
        pass_at: Pass@k for k = 1, ..., K.
        gains: Pass@k minus the sampled Pass@1 for the same k; the last is the gap.
        verdicts: the verdicts.
        shares: shares of G, S and U; that of S is p_S, the largest gain from correcting S.
        endings: how responses ended.
        majority: maj@K; None if answers cannot be compared.
        majority_gain: maj@K minus the sampled Pass@1; None without ``majority``.
    """

    greedy: Estimate
    pass_at: tuple[Estimate, ...]
    gains: tuple[Estimate, ...]
    verdicts: Verdicts
    shares: dict[State, Estimate]
    endings: Endings
    majority: Estimate | None = None
    majority_gain: Estimate | None = None

    def list_rates(self) -> Iterator[dict[str, Any]]:
        """Yield table rows: the greedy decode (k = 0), Pass@k for every k, and maj@K."""
        yield {"label": "greedy", "k": 0, "rate": self.greedy}
        for k, (rate, gain) in enumerate(zip(self.pass_at, self.gains, strict=True), 1):
            row = {"label": f"Pass@{k}" if k > 1 else "sampled Pass@1", "k": k, "rate": rate}
            yield row if k == 1 else {**row, "gain": gain}
        if self.majority:
            k = self.verdicts.k
            row = {"label": f"maj@{k}", "k": k, "rate": self.majority}
            yield {**row, "gain": self.majority_gain}


def compute_search(verdicts: Verdicts, endings: Endings | None = None) -> SearchFindings:
    """Compute all findings from verdicts.

    Args:
        verdicts: verdicts of one filter or one split.
        endings: how responses ended; None: all of them can be used.
    """
    states = verdicts.states
    k = verdicts.k
    ks = range(1, k + 1)
    problems = len(states)
    rates = [pass_at_k(verdicts.passing, k, size) for size in ks]
    exact = [verdicts.compute_pass_at(size) for size in ks]
    columns = [*rates, *(rate - rates[0] for rate in rates)]
    estimates = _estimate_means([*exact, *(share - exact[0] for share in exact)], columns)
    majority = majority_gain = None
    votes = verdicts.compute_majority()
    if votes is not None:
        voted = [votes, votes - rates[0]]
        majority, majority_gain = _estimate_means([column.mean() for column in voted], voted)
    return SearchFindings(
        greedy=estimate_share(verdicts.pass_at_1, problems),
        pass_at=tuple(estimates[:k]),
        gains=tuple(estimates[k:]),
        verdicts=verdicts,
        shares={
            state: estimate_share(Fraction(count, problems), problems)
            for state, count in verdicts.sizes.items()
        },
        endings=endings or Endings(problems * (k + 1)),
        majority=majority,
        majority_gain=majority_gain,
    )


def _estimate_means(
    values: Sequence[Fraction | float], columns: Sequence[NDArray[np.float64]]
) -> list[Estimate]:
    """Estimate the columns' means from the same resamples.

    A column without variation, which resampling cannot show, and one of 0 and 1 have Wilson
    intervals.

    Args:
        values: the means.
        columns: each of shape (problems,), within 0..1, or within -1..1 for a difference.
    """
    stacked = np.stack(columns, axis=1)
    problems = len(stacked)
    means = resample_means(
        stacked, np.arange(problems), replicates=REPLICATES, stream=Stream(_SEED, "gap")
    )
    return [
        _estimate_mean(value, column, replicates)
        for value, column, replicates in zip(values, columns, means.T, strict=True)
    ]


def _estimate_mean(
    value: Fraction | float, column: NDArray[np.float64], replicates: NDArray[np.float64]
) -> Estimate:
    is_constant = (column == column[0]).all()
    if is_constant and value < 0:
        return -estimate_share(-value, len(column))
    if is_constant or np.isin(column, (0, 1)).all():
        return estimate_share(value, len(column))
    return estimate_mean(value, replicates)
