"""Intervals of a mean over environments: resamples environments, then seeds, then audit items.

An environment is a task, a model and a budget, with one checkpoint a seed and an audit of its own.
Each counts the same in the mean, however many items or seeds it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import item_weights, seed_weights
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
