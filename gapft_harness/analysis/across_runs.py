"""Intervals of a mean over environments: resamples environments, then seeds, then audit items.

An environment is a task, a model and a budget, with one checkpoint a seed and an audit of its own.
Each counts the same in the mean, however many items or seeds it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import Replicates, item_weights, replicate, seed_weights
from gapft_harness.core.streams import Stream


@dataclass(frozen=True, slots=True)
class Environment:
    """Paired outcomes of one environment. The order of seeds and items has no say.

    Attributes:
        name: tells it from the others.
        seeds: shape (S,), distinct.
        item_ids: shape (P,), distinct.
        differences: by what is compared, shape (S, P): one decision minus another, -1, 0 or 1.
    """

    name: str
    seeds: NDArray[np.int64]
    item_ids: NDArray[np.str_]
    differences: dict[str, NDArray[np.int64]]


def replicate_means(
    environments: Sequence[Environment], *, replicates: int, stream: Stream
) -> dict[str, NDArray[np.float64]]:
    """Bootstrap replicates of the equal-environment mean of every difference.

    A replicate draws E environments with replacement. Within each one drawn it draws seeds, and
    items that are the same for all of its seeds and all differences. An environment that is drawn
    twice is resampled twice.

    Args:
        environments: at least one, of distinct names, all with the same differences.
        replicates: B.
        stream: the randomness.

    Returns:
        By difference, shape (B,).

    Raises:
        ValueError: no environment, names or ids that repeat, or shapes that do not fit.
    """
    _check(environments)
    ordered = sorted(environments, key=lambda of: of.name)
    count = len(ordered)
    names = sorted(ordered[0].differences)
    drawn = stream.child("environments").generator().integers(count, size=(replicates, count))
    sums = np.zeros((len(names), replicates))
    for place, of in enumerate(ordered):
        rows = np.nonzero(drawn == place)[0]
        if len(rows):
            means = _resampled(of, names, len(rows), stream.child(of.name))
            for number in range(len(names)):
                np.add.at(sums[number], rows, means[number])
    return {name: sums[number] / count for number, name in enumerate(names)}


def _resampled(
    of: Environment, names: Sequence[str], size: int, stream: Stream
) -> NDArray[np.float64]:
    """Shape (differences, size): an environment's mean under drawn seeds and drawn items."""
    by_seed, by_id = np.argsort(of.seeds), np.argsort(of.item_ids)
    seeds, items = len(by_seed), len(by_id)
    outcomes = np.vstack([of.differences[name][by_seed][:, by_id] for name in names])
    weights = seed_weights(seeds, size, stream)
    generator = stream.child("items").generator()
    # Whole numbers far below 2^53: exact in any order of summation.
    sums = np.concatenate(
        [drawn @ outcomes.T.astype(np.float64) for drawn in item_weights(items, size, generator)]
    )
    by_arm = sums.reshape(size, len(names), seeds)
    means: NDArray[np.float64] = np.einsum("bds,bs->db", by_arm, weights) / (seeds * items)
    return means


def _check(environments: Sequence[Environment]) -> None:
    if not environments:
        raise ValueError("expected at least one environment")
    names = [of.name for of in environments]
    if len(set(names)) != len(names):
        raise ValueError(f"environments must have distinct names, found {sorted(names)}")
    compared = environments[0].differences.keys()
    for of in environments:
        shape = len(of.seeds), len(of.item_ids)
        if of.differences.keys() != compared or any(
            values.shape != shape for values in of.differences.values()
        ):
            raise ValueError(f"environment {of.name}: differences do not fit {shape}, {compared}")
        if (
            0 in shape
            or len(np.unique(of.seeds)) != shape[0]
            or len(np.unique(of.item_ids)) != shape[1]
        ):
            raise ValueError(f"environment {of.name}: seeds and items must be distinct, and some")


# The mean over cells, each counted the same, and its interval (Section 4.2).
#
# A cell is a model on a task. The cells are those of the study and are not resampled: the mean
# describes them, and says nothing of other models or tasks (``replicate_means`` resamples).


@dataclass(frozen=True, slots=True)
class Cell:
    """Decisions of one cell. The order of seeds and items has no say.

    Attributes:
        passed: shape (C, S, P): condition, training seed, audit item.
        source_passed: shape (P,): the source's greedy decode.
        item_ids: shape (P,), distinct.
        seeds: shape (S,), distinct.
    """

    passed: NDArray[np.bool_]
    source_passed: NDArray[np.bool_]
    item_ids: NDArray[np.str_]
    seeds: NDArray[np.int64]


def joint_replicates(
    cells: Sequence[Cell], *, replicates: int, stream: Stream, nested: bool = False
) -> tuple[Replicates, ...]:
    """Bootstrap replicates of every cell, drawn together. The order of cells changes nothing.

    A replicate draws seeds once for all cells, and items once for all cells on one audit: what an
    item or a seed adds to several cells, it adds to them in the same replicates. Audits of other
    items are drawn apart; the first of them, by its ids, as ``replicate`` draws a cell alone.

    Args:
        cells: all with the same seeds.
        replicates: B.
        stream: the randomness.
        nested: as of ``replicate``.

    Raises:
        ValueError: seeds that differ between cells, or shapes that do not fit.
    """
    if len({tuple(sorted(cell.seeds.tolist())) for cell in cells}) > 1:
        raise ValueError("the seeds of all cells must be the same")
    audits = [tuple(sorted(cell.item_ids.tolist())) for cell in cells]
    streams = {
        ids: stream.child(f"items/{place}" if place else "items")
        for place, ids in enumerate(sorted(set(audits)))
    }
    return tuple(
        replicate(
            cell.passed,
            cell.source_passed,
            item_ids=cell.item_ids,
            seeds=cell.seeds,
            replicates=replicates,
            stream=stream,
            items=streams[ids],
            nested=nested,
        )
        for cell, ids in zip(cells, audits, strict=True)
    )


def equal_weight(
    counts: Sequence[NDArray[np.int64]], decisions: Sequence[int]
) -> NDArray[np.float64]:
    """Replicates of a mean over cells of counts, each divided by its cell's decisions.

    Exact up to one rounding a replicate, so that the order of cells changes no bit and a mean that
    is zero is zero.

    Args:
        counts: a cell's replicates each, shape (B,): correct decisions, or a difference of two.
        decisions: a cell's S P each.

    Returns:
        Shape (B,).
    """
    common = math.lcm(*decisions)
    pairs = zip(counts, decisions, strict=True)
    total = sum(of.astype(object) * (common // per) for of, per in pairs)
    return np.array(total / (common * len(counts)), dtype=np.float64)


def share_of(gain: Fraction, full: Fraction) -> Fraction | None:
    """The share of a larger budget's gain over the source that a gain is.

    Returns:
        The share, which may be negative or above 1; None where the larger budget gains nothing.
    """
    return gain / full if full > 0 else None
