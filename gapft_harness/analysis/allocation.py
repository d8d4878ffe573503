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

from gapft_harness.analysis.bootstrap import draw_item_weights, draw_seed_weights
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
    n_seeds, items = halves.shape
    if not (
        diffuse.shape == concentrated.shape == halves.shape
        and item_ids.shape == (items,)
        and seeds.shape == (n_seeds,)
    ):
        raise ValueError(
            f"shapes do not match: halves {halves.shape}, decisions {diffuse.shape} and "
            f"{concentrated.shape}, items {item_ids.shape}, seeds {seeds.shape}"
        )
    if len(np.unique(item_ids)) != items or len(np.unique(seeds)) != n_seeds:
        raise ValueError("item ids and seeds must be distinct")
    order = np.ix_(np.argsort(seeds), np.argsort(item_ids))
    in_a, in_b = halves[order] == "A", halves[order] == "B"
    once, twice = diffuse[order], concentrated[order]
    members = np.concatenate([in_a, in_b])
    if not members.any(axis=1).all():
        raise ValueError("a half has no problem")
    passed = np.concatenate([in_a & once, in_a & twice, in_b & twice, in_b & once])
    columns = np.concatenate([members, passed]).T.astype(np.float64)
    sums = _draw_sums(columns, 2 * n_seeds, replicates, stream).reshape(replicates, 6, n_seeds)
    counts_a, counts_b = sums[:, 0], sums[:, 1]
    seed_counts = draw_seed_weights(n_seeds, replicates, stream)

    def compute_mean(
        correct: NDArray[np.float64], counts: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        means: NDArray[np.float64] = (correct / counts * seed_counts).sum(axis=1) / n_seeds
        return means

    return Successes(
        a_1=compute_mean(sums[:, 2], counts_a),
        a_2=compute_mean(sums[:, 3], counts_a),
        b_0=compute_mean(sums[:, 4], counts_b),
        b_1=compute_mean(sums[:, 5], counts_b),
    )


def _draw_sums(
    columns: NDArray[np.float64], halves: int, replicates: int, stream: Stream
) -> NDArray[np.float64]:
    """Draw item weights and return the column sums of the first B accepted draws.

    A draw is accepted if the first ``halves`` columns all have a positive sum. The draws come from
    one sequence, so the size of the chunks does not change them. All values are integers below
    2^53, so the sums are exact.
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
        size = missing
        for weights in draw_item_weights(len(columns), size, generator):
            sums = weights @ columns
            rows = sums[(sums[:, :halves] > 0).all(axis=1)]
            accepted.append(rows)
            missing -= len(rows)
        drawn += size
    return np.concatenate(accepted)
