"""Bootstrap replicates of a mean over environments: resample environments, then seeds and items.

An environment is a task, a model and a budget, with one checkpoint per seed and its own audit. All
environments have the same weight in the mean, regardless of their numbers of items and seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import (
    Replicates,
    draw_item_weights,
    draw_replicates,
    draw_seed_weights,
)
from gapft_harness.core.streams import Stream


@dataclass(frozen=True, slots=True)
class Environment:
    """Paired outcomes of one environment. The order of seeds and items does not matter.

    Attributes:
        name: the unique name of the environment.
        seeds: shape (S,), distinct.
        item_ids: shape (P,), distinct.
        differences: comparison -> shape (S, P), the difference of two decisions: -1, 0 or 1.
    """

    name: str
    seeds: NDArray[np.int64]
    item_ids: NDArray[np.str_]
    differences: dict[str, NDArray[np.int64]]


def draw_mean_replicates(
    environments: Sequence[Environment], *, replicates: int, stream: Stream
) -> dict[str, NDArray[np.float64]]:
    """Draw bootstrap replicates of the equal-weight mean over environments of every difference.

    A replicate draws E environments with replacement. Within each drawn environment it draws seeds,
    and items that are the same for all of its seeds and all differences. An environment that is
    drawn twice is resampled twice.

    Args:
        environments: at least one, with distinct names, all with the same comparisons.
        replicates: B.
        stream: the random stream.

    Returns:
        Comparison -> replicates of the mean, shape (B,).

    Raises:
        ValueError: there is no environment, names or ids repeat, or shapes do not match.
    """
    _check_environments(environments)
    ordered = sorted(environments, key=lambda environment: environment.name)
    count = len(ordered)
    names = sorted(ordered[0].differences)
    drawn = stream.child("environments").generator().integers(count, size=(replicates, count))
    sums = np.zeros((len(names), replicates))
    for place, environment in enumerate(ordered):
        rows = np.nonzero(drawn == place)[0]
        if len(rows):
            means = _resample_means(environment, names, len(rows), stream.child(environment.name))
            for number in range(len(names)):
                np.add.at(sums[number], rows, means[number])
    return {name: sums[number] / count for number, name in enumerate(names)}


def _resample_means(
    environment: Environment, names: Sequence[str], size: int, stream: Stream
) -> NDArray[np.float64]:
    """Resample an environment's means over seeds and items, shape (comparisons, size)."""
    by_seed, by_id = np.argsort(environment.seeds), np.argsort(environment.item_ids)
    seeds, items = len(by_seed), len(by_id)
    outcomes = np.vstack([environment.differences[name][by_seed][:, by_id] for name in names])
    weights = draw_seed_weights(seeds, size, stream)
    generator = stream.child("items").generator()
    # All values are integers far below 2^53, so the sums are exact in any order.
    sums = np.concatenate(
        [
            drawn @ outcomes.T.astype(np.float64)
            for drawn in draw_item_weights(items, size, generator)
        ]
    )
    by_arm = sums.reshape(size, len(names), seeds)
    means: NDArray[np.float64] = np.einsum("bds,bs->db", by_arm, weights) / (seeds * items)
    return means


def _check_environments(environments: Sequence[Environment]) -> None:
    if not environments:
        raise ValueError("expected at least one environment")
    names = [environment.name for environment in environments]
    if len(set(names)) != len(names):
        raise ValueError(f"environments must have distinct names, found {sorted(names)}")
    compared = environments[0].differences.keys()
    for environment in environments:
        shape = len(environment.seeds), len(environment.item_ids)
        if environment.differences.keys() != compared or any(
            values.shape != shape for values in environment.differences.values()
        ):
            raise ValueError(
                f"environment {environment.name}: expected differences of shape {shape} for "
                f"{sorted(compared)}"
            )
        if (
            0 in shape
            or len(np.unique(environment.seeds)) != shape[0]
            or len(np.unique(environment.item_ids)) != shape[1]
        ):
            raise ValueError(
                f"environment {environment.name}: expected distinct seeds and items, found "
                "repeated ones or none"
            )


# The equal-weight mean over cells and its interval (Section 4.2).
#
# A cell is a model on a task. The cells of a study are not resampled: the mean describes these
# cells and does not generalize to other models or tasks (``draw_mean_replicates`` resamples).


@dataclass(frozen=True, slots=True)
class Cell:
    """Decisions of one cell. The order of seeds and items does not matter.

    Attributes:
        passed: shape (C, S, P): condition, training seed, audit item: whether the item's
            deployment decode passed.
        source_passed: shape (P,): the same for the source.
        item_ids: shape (P,), distinct.
        seeds: shape (S,), distinct.
    """

    passed: NDArray[np.bool_]
    source_passed: NDArray[np.bool_]
    item_ids: NDArray[np.str_]
    seeds: NDArray[np.int64]


def draw_joint_replicates(
    cells: Sequence[Cell], *, replicates: int, stream: Stream, nested: bool = False
) -> tuple[Replicates, ...]:
    """Draw joint bootstrap replicates of several cells. The order of the cells does not matter.

    A replicate draws seeds once for all cells, and items once for all cells with the same audit, so
    that the effect of an item or a seed on several cells occurs in the same replicates. Different
    audits are drawn independently. The first audit, by its ids, gets the draws that
    ``draw_replicates`` uses for a single cell.

    Args:
        cells: the cells, all with the same seeds.
        replicates: B.
        stream: the random stream.
        nested: see ``draw_replicates``.

    Raises:
        ValueError: the seeds differ between cells, or shapes do not match.
    """
    if len({tuple(sorted(cell.seeds.tolist())) for cell in cells}) > 1:
        raise ValueError("the seeds of all cells must be the same")
    audits = [tuple(sorted(cell.item_ids.tolist())) for cell in cells]
    streams = {
        ids: stream.child(f"items/{place}" if place else "items")
        for place, ids in enumerate(sorted(set(audits)))
    }
    return tuple(
        draw_replicates(
            cell.passed,
            cell.source_passed,
            item_ids=cell.item_ids,
            seeds=cell.seeds,
            replicates=replicates,
            stream=stream,
            item_stream=streams[ids],
            nested=nested,
        )
        for cell, ids in zip(cells, audits, strict=True)
    )


def average_cells(
    counts: Sequence[NDArray[np.int64]], decisions: Sequence[int]
) -> NDArray[np.float64]:
    """Average replicates over cells; each count is divided by its cell's number of decisions.

    The result is exact up to one rounding per replicate, so that it does not depend on the order of
    the cells, and a mean of zero is exactly zero.

    Args:
        counts: for each cell its replicates, shape (B,): passing decodes, or a difference of two
            such counts.
        decisions: for each cell S P.

    Returns:
        The replicates of the mean, shape (B,).
    """
    common = math.lcm(*decisions)
    pairs = zip(counts, decisions, strict=True)
    total = sum(cell_counts.astype(object) * (common // per) for cell_counts, per in pairs)
    return np.array(total / (common * len(counts)), dtype=np.float64)


def compute_gain_share(gain: Fraction, full: Fraction) -> Fraction | None:
    """Compute a gain over the source as a share of the gain of a larger budget.

    Args:
        gain: the gain of the smaller budget.
        full: the gain of the larger budget.

    Returns:
        The share, which may be negative or above 1; None if the larger budget has no gain.
    """
    return gain / full if full > 0 else None
