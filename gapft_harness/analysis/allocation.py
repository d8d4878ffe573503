"""Coverage against repetition on the problems trained on (Equation coverage_repetition).

A fixed budget is spent on two halves A and B once each (``diffuse``), or on A twice
(``concentrated``). With a_C(r) the success on half C after r exposures,

    contrast = 1/2 [a_B(1) - a_B(0)] - 1/2 [a_A(2) - a_A(1)]
             = 1/2 coverage gain     - 1/2 repetition loss

The diffuse model gives a_A(1) and a_B(1), the concentrated one a_A(2) and a_B(0). For halves of
one size the contrast is the mean over both of diffuse minus concentrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import item_weights, seed_weights
from gapft_harness.core.errors import GapftError
from gapft_harness.core.streams import Stream

Value = TypeVar("Value", Fraction, NDArray[np.float64])

#: Draws per wanted replicate before halves count as too small to resample.
_PATIENCE = 1000


@dataclass(frozen=True, slots=True)
class Successes(Generic[Value]):
    """Subset success a_C(r), exact or as replicates; what follows from it is defined once.

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
        """a_B(1) - a_B(0): what a first exposure of B adds on B."""
        return self.b_1 - self.b_0

    @property
    def repetition_loss(self) -> Value:
        """a_A(2) - a_A(1): what diffuse forgoes on A by not repeating it."""
        return self.a_2 - self.a_1

    @property
    def contrast(self) -> Value:
        """Diffuse minus concentrated; above 0 speaks for coverage."""
        return (self.coverage_gain - self.repetition_loss) / 2


def successes(
    halves: NDArray[np.str_], diffuse: NDArray[np.bool_], concentrated: NDArray[np.bool_]
) -> Successes[Fraction]:
    """One seed's subset success, exact.

    Args:
        halves: shape (P,), ``A`` or ``B``; anything else was not trained on and does not count.
        diffuse: shape (P,), V of the diffuse model's greedy decode.
        concentrated: shape (P,), the same of the concentrated model.

    Raises:
        ValueError: shapes that differ, or a half without problems.
    """
    if not halves.shape == diffuse.shape == concentrated.shape:
        raise ValueError(
            f"expected one half and two decisions a problem, found shapes {halves.shape}, "
            f"{diffuse.shape} and {concentrated.shape}"
        )

    def share(half: str, passed: NDArray[np.bool_]) -> Fraction:
        members = halves == half
        if not members.any():
            raise ValueError(f"half {half} has no problem")
        return Fraction(int(passed[members].sum()), int(members.sum()))

    return Successes(
        a_1=share("A", diffuse),
        a_2=share("A", concentrated),
        b_0=share("B", concentrated),
        b_1=share("B", diffuse),
    )


def mean_successes(parts: Sequence[Successes[Fraction]]) -> Successes[Fraction]:
    """The mean over seeds, each seed counting the same."""

    def mean(values: Sequence[Fraction]) -> Fraction:
        return sum(values, Fraction(0)) / len(values)

    return Successes(
        a_1=mean([part.a_1 for part in parts]),
        a_2=mean([part.a_2 for part in parts]),
        b_0=mean([part.b_0 for part in parts]),
        b_1=mean([part.b_1 for part in parts]),
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
    """Draws paired bootstrap replicates. The order of problems and of seeds changes nothing.

    A replicate draws training seeds, the same for both models, and problems of the union of all
    halves, the same for both models and all seeds: a problem that two seeds trained on has one
    weight. Success is the weighted mean within each half of each drawn seed. Draws in which some
    seed's half has no weight are drawn again, so the replicates are conditional on every half
    being seen; for halves of 10 and more that is rare.

    Args:
        halves: shape (S, P), ``A``, ``B``, or ``""`` where that seed did not train on the problem.
        diffuse: shape (S, P), V of the diffuse models; not looked at where there is no half.
        concentrated: shape (S, P), the same of the concentrated models.
        item_ids: shape (P,), distinct.
        seeds: shape (S,), distinct.
        replicates: B.
        stream: the randomness.

    Returns:
        Means over the drawn seeds, each of shape (B,).

    Raises:
        ValueError: shapes that do not fit, repeated ids or seeds, or a half without problems.
        GapftError: halves so small that hardly any draw sees all of them.
    """
    n_seeds, items = halves.shape
    if not (
        diffuse.shape == concentrated.shape == halves.shape
        and item_ids.shape == (items,)
        and seeds.shape == (n_seeds,)
    ):
        raise ValueError(
            f"halves of shape {halves.shape} do not fit decisions of shapes {diffuse.shape} and "
            f"{concentrated.shape}, {item_ids.shape} items and {seeds.shape} seeds"
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
    sums = _draw(columns, 2 * n_seeds, replicates, stream).reshape(replicates, 6, n_seeds)
    of_a, of_b = sums[:, 0], sums[:, 1]
    of_seeds = seed_weights(n_seeds, replicates, stream)

    def mean(correct: NDArray[np.float64], of: NDArray[np.float64]) -> NDArray[np.float64]:
        means: NDArray[np.float64] = (correct / of * of_seeds).sum(axis=1) / n_seeds
        return means

    return Successes(
        a_1=mean(sums[:, 2], of_a),
        a_2=mean(sums[:, 3], of_a),
        b_0=mean(sums[:, 4], of_b),
        b_1=mean(sums[:, 5], of_b),
    )


def _draw(
    columns: NDArray[np.float64], halves: int, replicates: int, stream: Stream
) -> NDArray[np.float64]:
    """Weighted column sums of the first B draws in which the first ``halves`` columns have weight.

    The accepted draws are taken from one sequence, so chunks do not change them. The sums are of
    whole numbers below 2^53, and so exact.
    """
    generator = stream.child("items").generator()
    kept: list[NDArray[np.float64]] = []
    missing, drawn = replicates, 0
    while missing:
        if drawn >= _PATIENCE * replicates:
            raise GapftError(
                f"the halves are too small to resample: of {drawn} draws of problems only "
                f"{replicates - missing} have a problem of every half of every seed; raise "
                "budget.n, or leave the key allocation out"
            )
        wanted = missing
        for weights in item_weights(len(columns), wanted, generator):
            sums = weights @ columns
            seen = sums[(sums[:, :halves] > 0).all(axis=1)]
            kept.append(seen)
            missing -= len(seen)
        drawn += wanted
    return np.concatenate(kept)
