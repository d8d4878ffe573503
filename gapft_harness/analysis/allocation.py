"""Compare coverage and repetition on the training problems (Equation coverage_repetition).

A fixed budget is spent on two halves A and B once each (``diffuse``), or on A twice
(``concentrated``). With a_C(r) the success rate on half C after r exposures,

    contrast = 1/2 [a_B(1) - a_B(0)] - 1/2 [a_A(2) - a_A(1)]
             = 1/2 coverage gain     - 1/2 repetition loss

The diffuse model yields a_A(1) and a_B(1), the concentrated model a_A(2) and a_B(0). For halves of
equal size, the contrast is the mean over both halves of diffuse minus concentrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.resampling import Scores, draw_seed_weights, sum_draws
from gapft_harness.core.errors import GapftError
from gapft_harness.core.streams import Stream

Value = TypeVar("Value", Fraction, NDArray[np.float64])

#: Draws per requested replicate after which the halves count as too small to resample.
_MAX_DRAW_FACTOR = 1000


@dataclass(frozen=True, slots=True)
class Successes(Generic[Value]):
    """Success rates a_C(r) on the two halves, as exact values or as replicates.

    Attributes:
        a_1: a_A(1), the diffuse model on A.
        a_2: a_A(2), the concentrated model on A.
        b_0: a_B(0), the concentrated model on B.
        b_1: a_B(1), the diffuse model on B.
    """

    a_1: Value
    a_2: Value
    b_0: Value
    b_1: Value

    @property
    def coverage_gain(self) -> Value:
        """a_B(1) - a_B(0): the gain on B from a first exposure."""
        return self.b_1 - self.b_0

    @property
    def repetition_loss(self) -> Value:
        """a_A(2) - a_A(1): the loss of the diffuse model on A for lack of a second exposure."""
        return self.a_2 - self.a_1

    @property
    def contrast(self) -> Value:
        """Diffuse minus concentrated; a positive value favors coverage."""
        return (self.coverage_gain - self.repetition_loss) / 2


def compute_successes(
    halves: NDArray[np.str_], diffuse: NDArray[np.bool_], concentrated: NDArray[np.bool_]
) -> Successes[Fraction]:
    """Compute one seed's exact success rates on the halves.

    Args:
        halves: shape (P,), ``A`` or ``B``; problems with other values were not trained on and are
            ignored.
        diffuse: shape (P,), V of the diffuse model's greedy decode.
        concentrated: shape (P,), the same for the concentrated model.

    Raises:
        ValueError: shapes differ, or a half has no problem.
    """
    if not halves.shape == diffuse.shape == concentrated.shape:
        raise ValueError(
            f"expected one half and two decisions per problem, found shapes {halves.shape}, "
            f"{diffuse.shape} and {concentrated.shape}"
        )

    def compute_share(half: str, passed: NDArray[np.bool_]) -> Fraction:
        members = halves == half
        if not members.any():
            raise ValueError(f"half {half} has no problem")
        return Fraction(int(passed[members].sum()), int(members.sum()))

    return Successes(
        a_1=compute_share("A", diffuse),
        a_2=compute_share("A", concentrated),
        b_0=compute_share("B", concentrated),
        b_1=compute_share("B", diffuse),
    )


def average_successes(parts: Sequence[Successes[Fraction]]) -> Successes[Fraction]:
    """Average over seeds with equal weights."""

    def compute_mean(values: Sequence[Fraction]) -> Fraction:
        return sum(values, Fraction(0)) / len(values)

    return Successes(
        a_1=compute_mean([part.a_1 for part in parts]),
        a_2=compute_mean([part.a_2 for part in parts]),
        b_0=compute_mean([part.b_0 for part in parts]),
        b_1=compute_mean([part.b_1 for part in parts]),
    )


def replicate_successes(
    halves: NDArray[np.str_],
    diffuse: NDArray[np.bool_],
    concentrated: NDArray[np.bool_],
    *,
    item_ids: NDArray[np.str_],
    seeds: NDArray[np.int64],
    replicates: int,
    stream: Stream,
) -> Successes[NDArray[np.float64]]:
    """Draw paired bootstrap replicates. The order of problems and of seeds does not matter.

    A replicate draws training seeds, the same for both models, and problems from the union of all
    halves, the same for both models and all seeds: a problem that two seeds trained on has one
    weight. The success rate is the weighted mean within each half of each drawn seed. A draw in
    which a half of any seed has no weight is rejected and repeated, so the replicates are
    conditional on every half being drawn; for halves of 10 or more, rejection is rare.

    Args:
        halves: shape (S, P), ``A``, ``B``, or ``""`` if that seed did not train on the problem.
        diffuse: shape (S, P), V of the diffuse models; ignored outside the halves.
        concentrated: shape (S, P), the same for the concentrated models.
        item_ids: shape (P,), distinct.
        seeds: shape (S,), distinct.
        replicates: B.
        stream: the random stream.

    Returns:
        Means over the drawn seeds, each of shape (B,).

    Raises:
        ValueError: shapes do not match, ids or seeds repeat, or a half has no problem.
        GapftError: the halves are so small that almost every draw is rejected.
    """
    in_a, in_b = halves == "A", halves == "B"
    if not (in_a.any(axis=1) & in_b.any(axis=1)).all():
        raise ValueError("a half has no problem")
    rows = {
        "A": in_a,
        "B": in_b,
        "a_1": in_a & diffuse,
        "a_2": in_a & concentrated,
        "b_0": in_b & concentrated,
        "b_1": in_b & diffuse,
    }
    columns = Scores(rows, seeds, item_ids).stack_columns()
    sums = _draw_sums(columns, 2 * len(seeds), replicates, stream)
    by_seed = dict(zip(rows, np.split(sums, len(rows), axis=1), strict=True))
    seed_counts = draw_seed_weights(len(seeds), replicates, stream)

    def compute_mean(name: str, half: str) -> NDArray[np.float64]:
        rates = by_seed[name] / by_seed[half]
        means: NDArray[np.float64] = (rates * seed_counts).sum(axis=1) / len(seeds)
        return means

    return Successes(
        a_1=compute_mean("a_1", "A"),
        a_2=compute_mean("a_2", "A"),
        b_0=compute_mean("b_0", "B"),
        b_1=compute_mean("b_1", "B"),
    )


def _draw_sums(
    columns: NDArray[np.float64], halves: int, replicates: int, stream: Stream
) -> NDArray[np.float64]:
    """Draw column sums, and return those of the first B accepted draws.

    A draw is accepted if the first ``halves`` columns all have a positive sum. The draws come from
    one sequence.
    """
    generator = stream.child("items").generator()
    accepted: list[NDArray[np.float64]] = []
    missing, drawn = replicates, 0
    while missing:
        if drawn >= _MAX_DRAW_FACTOR * replicates:
            raise GapftError(
                f"the halves are too small to resample: only {replicates - missing} of {drawn} "
                "draws contain a problem of every half of every seed; increase budget.n, or "
                "remove the key allocation"
            )
        sums = sum_draws(columns, missing, generator)
        drawn += missing
        accepted.append(sums[(sums[:, :halves] > 0).all(axis=1)])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)
