"""Whether scores of training examples for audit problems predict what other arms decide.

An attribution method gives every training example a score for every audit problem, tau of shape
(E, P). Of an arm whose training set holds the examples w_e times each, the sums w tau predict which
problems it solves rather than another arm. The linear datamodeling score (Park et al. 2023, *TRAK*,
Section 2) is Spearman's correlation of prediction and decision over arms that the method was not
fitted on, a problem at a time, and its mean over problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from gapft_harness.analysis.bootstrap import (
    Interval,
    item_weights,
    percentile_interval,
    seed_weights,
)
from gapft_harness.core.streams import Stream

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What is predicted of arms that a method was not fitted on, and what they decided.

    Attributes:
        predicted: shape (A, M), in any unit.
        observed: shape (A, M).
    """

    predicted: Array
    observed: Array


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well predictions rank held-out arms.

    Attributes:
        score: the mean over columns of Spearman's correlation over arms, then over folds. A
            prediction that is the same for all arms ranks none: its correlation is 0.
        interval: its 95% interval, over arms and columns.
        permuted: 95% of the scores where arms exchanged their training sets at random.
        columns: those in which arms differ in some fold; only they have a correlation.
    """

    score: float
    interval: Interval
    permuted: Interval
    columns: int


def agreement(folds: Sequence[HeldOut], *, replicates: int, stream: Stream) -> Agreement | None:
    """Scores predictions on the arms of each fold, which are disjoint.

    An interval's replicates draw arms within each fold and columns, the same in every fold; ranks
    are those among all arms of the fold.

    Returns:
        None where the arms of a fold decide all columns alike.
    """
    ranked = [(_ranks(of.predicted), _ranks(of.observed)) for of in folds]
    differ = [observed.any(axis=0) for _, observed in ranked]
    if not all(of.any() for of in differ):
        return None
    # by fold, of what arm a is predicted and arm b decides: their product, mean over columns
    products = [
        (predicted @ observed.T) / of.sum()
        for (predicted, observed), of in zip(ranked, differ, strict=True)
    ]
    exchanged = np.mean(
        [_permuted(of, replicates, stream.child(f"{i}")) for i, of in enumerate(products)], axis=0
    )
    drawn = np.mean([*_resampled(ranked, replicates, stream)], axis=0)
    return Agreement(
        float(np.mean([np.trace(of) for of in products])),
        percentile_interval(drawn),
        percentile_interval(exchanged),
        int(np.any(differ, axis=0).sum()),
    )


def _ranks(values: Array) -> Array:
    """Ranks over the first axis, centred and of length 1; 0 where all values are equal."""
    ranks = rankdata(values, axis=0)
    ranks = ranks - ranks.mean(axis=0)
    lengths = np.sqrt((ranks**2).sum(axis=0))
    found: Array = np.divide(ranks, lengths, out=np.zeros_like(ranks), where=lengths > 0)
    return found


def _permuted(products: Array, replicates: int, stream: Stream) -> Array:
    """Shape (B,): the score where each arm is predicted by the training set of another."""
    own = np.arange(len(products))
    others = stream.generator().permuted(np.tile(own, (replicates, 1)), axis=1)
    scores: Array = products[others, own].sum(axis=1)
    return scores


def _resampled(
    ranked: Sequence[tuple[Array, Array]], replicates: int, stream: Stream
) -> Iterator[Array]:
    """Yields a fold's scores, shape (B,): correlations of ranks, weighted by arms and columns."""
    for fold, (predicted, observed) in enumerate(ranked):
        arms = seed_weights(len(observed), replicates, stream.child(f"arms {fold}"))
        arms = arms / len(observed)
        columns = item_weights(observed.shape[1], replicates, stream.child("items").generator())
        scores, done = [], 0
        for of in columns:
            drawn = arms[done : done + len(of)]
            done += len(of)
            mean_p, mean_o = drawn @ predicted, drawn @ observed
            spread_p, spread_o = (
                np.maximum(drawn @ ranks**2 - mean**2, 0)
                for ranks, mean in ((predicted, mean_p), (observed, mean_o))
            )
            product = drawn @ (predicted * observed) - mean_p * mean_o
            scale = np.sqrt(spread_p * spread_o)
            rates = np.divide(product, scale, out=np.zeros_like(scale), where=scale > _TINY)
            weights = of * (spread_o > _TINY)
            total = weights.sum(axis=1)
            scores.append((rates * weights).sum(axis=1) / np.maximum(total, 1))
        yield np.concatenate(scores)


#: A spread of ranks of length 1 that is rounding alone.
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Slope:
    """How much an outcome rises from one end of a share to the other, and its 95% interval."""

    rise: float
    interval: Interval


def slope(share: Array, passed: NDArray[np.bool_], *, replicates: int, stream: Stream) -> Slope:
    """The least-squares rise of the mean decision as a share goes from 0 to 1.

    Args:
        share: shape (A,), of each arm; not all the same.
        passed: shape (A, P), at least one problem.
        replicates: B, which draw arms and problems.
        stream: the randomness.
    """
    arms, problems = passed.shape
    drawn = seed_weights(arms, replicates, stream) / arms
    columns = item_weights(problems, replicates, stream.child("items").generator())
    rates = np.concatenate([of @ passed.T.astype(np.float64) for of in columns]) / problems
    means = drawn @ share
    spread = drawn @ share**2 - means**2
    product = (drawn * rates) @ share - means * (drawn * rates).sum(axis=1)
    rises = product / np.maximum(spread, _TINY)
    centred = share - share.mean()
    rise = centred @ passed.mean(axis=1) / (centred @ centred)
    return Slope(float(rise), percentile_interval(rises))
