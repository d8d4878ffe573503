"""Whether scores of training examples for audit problems predict what other arms decide.

An attribution method gives every training example a score for every audit problem, tau of shape
(E, P). Of an arm whose training set holds the examples w_e times each, the sums w tau predict which
problems it solves rather than another arm. The linear datamodeling score (Park et al. 2023, *TRAK*,
Section 2) is Spearman's correlation of prediction and decision over arms that the method was not
fitted on, a problem at a time, and its mean over problems.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        given: shape (A,), what is known of arms anyway: correlations are partial ones, of what its
            ranks do not explain; None: nothing.
    """

    predicted: Array
    observed: Array
    given: Array | None = None


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

    An interval's replicates draw arms within each fold and columns, the same in every fold. A
    correlation's change with them is its linear part (the influence function of a correlation of
    ranks): to compute it anew would leave out columns in which the drawn arms do not differ, and
    so favour those with few arms that do.

    Returns:
        None where the arms of a fold decide all columns alike.
    """
    ranked = [(_ranks(of.predicted, of.given), _ranks(of.observed, of.given)) for of in folds]
    differ = [observed.any(axis=0) for _, observed in ranked]
    if not all(of.any() for of in differ):
        return None
    scores, exchanged, drawn = [], [], []
    of_column = np.zeros(folds[0].observed.shape[1])
    for fold, ((predicted, observed), told) in enumerate(zip(ranked, differ, strict=True)):
        predicted, observed = predicted[:, told], observed[:, told]
        products, own = predicted * observed, stream.child(f"fold {fold}")
        correlations = products.sum(axis=0)
        scores.append(correlations.mean())
        of_column[told] += (correlations - scores[-1]) / told.sum()
        of_arm = (products - correlations * (predicted**2 + observed**2) / 2).mean(axis=1)
        drawn.append(seed_weights(len(of_arm), replicates, own) @ of_arm)
        exchanged.append(_permuted(predicted @ observed.T / told.sum(), replicates, own))
    columns = item_weights(len(of_column), replicates, stream.child("items").generator())
    by_column = np.concatenate([of @ of_column for of in columns]) / len(folds)
    score = float(np.mean(scores))
    return Agreement(
        score,
        percentile_interval(score + np.mean(drawn, axis=0) + by_column),
        percentile_interval(np.mean(exchanged, axis=0)),
        int(np.any(differ, axis=0).sum()),
    )


def _ranks(values: Array, given: Array | None = None) -> Array:
    """Ranks over the first axis, less what those of ``given`` explain, centred and of length 1.

    They are 0 where nothing is left: where all values are equal, or ``given`` explains them. Values
    that differ by rounding are equal: a sum of the same scores in another order is a tie.
    """
    ranks = rankdata(np.round(values / (np.abs(values).max() or 1), 10), axis=0)
    ranks = ranks - ranks.mean(axis=0)
    if given is not None:
        known = _ranks(given[:, None])
        ranks = ranks - known * (known.T @ ranks)
    lengths = np.sqrt((ranks**2).sum(axis=0))
    found: Array = np.divide(ranks, lengths, out=np.zeros_like(ranks), where=lengths > _ROUNDING)
    return found


#: The length of ranks, which are whole or half numbers, that only rounding has left.
_ROUNDING = 1e-6


def _permuted(products: Array, replicates: int, stream: Stream) -> Array:
    """Shape (B,): the score where each arm is predicted by the training set of another.

    Args:
        products: shape (A, A), of what arm a is predicted and arm b decides, mean over columns.
        replicates: B.
        stream: the randomness.
    """
    own = np.arange(len(products))
    others = stream.generator().permuted(np.tile(own, (replicates, 1)), axis=1)
    scores: Array = products[others, own].sum(axis=1)
    return scores


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
    rises = product / np.maximum(spread, np.finfo(float).tiny)
    centred = share - share.mean()
    rise = centred @ passed.mean(axis=1) / (centred @ centred)
    return Slope(float(rise), percentile_interval(rises))
