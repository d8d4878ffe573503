"""The bootstrap over training seeds and audit items (Section 4.1).

One replicate draws training seeds, the same for every condition (seed 13 stays paired with seed
13), and audit items, the same for every seed and condition: an item that is easy under one seed is
usually easy under the others, so drawing items separately for each seed (``nested``) understates
the spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.estimate import (
    Estimate,
    estimate_difference,
    estimate_mean,
    estimate_paired_difference,
)
from gapft_harness.core.streams import Stream

#: Item weights in memory at once (float64 values): half a MiB, which fits into the CPU cache.
_CHUNK_VALUES = 1 << 16
#: Clusters are drawn by kind if there are at least this many times more clusters than kinds.
_MIN_CLUSTERS_PER_KIND = 8


@dataclass(frozen=True, slots=True)
class Scores:
    """Whole-number scores by condition, seed and item. The order of seeds and items is free.

    Attributes:
        rows: by name of a condition (or model), shape (S, P); a row of the source may be a
            broadcast array.
        seeds: shape (S,), distinct.
        items: shape (P,), distinct ids.
    """

    rows: Mapping[str, NDArray[np.bool_] | NDArray[np.int64]]
    seeds: NDArray[np.int64]
    items: NDArray[np.str_]

    def __post_init__(self) -> None:
        shape = len(self.seeds), len(self.items)
        if 0 in shape or any(row.shape != shape for row in self.rows.values()):
            found = {name: row.shape for name, row in self.rows.items()}
            raise ValueError(f"shapes do not match: expected {shape} for every row, found {found}")
        if len(np.unique(self.items)) != shape[1] or len(np.unique(self.seeds)) != shape[0]:
            raise ValueError("item ids and seeds must be distinct")

    @property
    def decisions(self) -> int:
        """S P."""
        return len(self.seeds) * len(self.items)

    def compute_mean(self, name: str) -> Fraction:
        """Compute the exact mean of a row."""
        return Fraction(int(self.rows[name].sum()), self.decisions)

    def compute_difference(self, a: str, b: str) -> Fraction:
        """Compute the exact mean of row a minus that of row b."""
        return self.compute_mean(a) - self.compute_mean(b)

    def estimate_difference(self, a: str, b: str) -> Estimate:
        """Estimate the mean of row a minus that of row b, with Newcombe's interval.

        Both rows are 0 or 1. The independent units are the items.
        """
        first, second = (self.rows[name].astype(float).ravel() for name in (a, b))
        value = self.compute_difference(a, b)
        return estimate_paired_difference(value, second, first, len(self.items))

    def stack_columns(self) -> NDArray[np.float64]:
        """Stack all rows in the order of seeds and ids, shape (P, rows S)."""
        by_seed = np.argsort(self.seeds)
        by_id = np.argsort(self.items)
        ordered = [row[by_seed][:, by_id] for row in self.rows.values()]
        return np.concatenate(ordered).T.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Resampled:
    """Bootstrap replicates of scores.

    They are sums, not means, so that differences are exact: a condition minus itself is 0.

    Attributes:
        scores: the scores.
        sums: by name, shape (B,): the sum over the drawn seeds and items.
    """

    scores: Scores
    sums: Mapping[str, NDArray[np.int64]]

    def estimate_mean(self, name: str) -> Estimate:
        """Estimate the mean of a row."""
        return estimate_mean(self.scores.compute_mean(name), self.sums[name], self.scores.decisions)

    def contrast(self, a: str, b: str) -> Estimate:
        """Estimate the mean of row a minus that of row b, paired by seed and item.

        Where resampling shows no variation, the interval is Newcombe's, and only a difference of
        zero has a p value.
        """
        value = self.scores.compute_difference(a, b)
        estimate = estimate_difference(value, self.subtract(a, b), self.scores.decisions)
        if estimate.low < estimate.high:
            return estimate
        interval = self.scores.estimate_difference(a, b)
        return replace(interval, p=None if value else estimate.p)

    def subtract(self, a: str, b: str) -> NDArray[np.int64]:
        """Subtract the sums of row b from those of row a, shape (B,)."""
        return self.sums[a] - self.sums[b]


def average_contrasts(cells: Sequence[Resampled], a: str, b: str) -> Estimate:
    """Estimate the equal-weight mean over cells of row a minus row b (Section 4.2).

    The cells are not resampled: the mean describes these cells, no other models or tasks. It is
    exact up to one rounding per replicate, so that it does not depend on the order of the cells,
    and a mean of zero is exactly zero. Where resampling shows no variation, the interval is that of
    ``average_estimates``, and only a mean of zero has a p value.
    """
    common = math.lcm(*(cell.scores.decisions for cell in cells))
    total = sum(
        cell.subtract(a, b).astype(object) * (common // cell.scores.decisions) for cell in cells
    )
    replicates = np.array(total / (common * len(cells)), dtype=np.float64)
    value = average_differences([cell.scores for cell in cells], a, b)
    estimate = estimate_difference(value, replicates)
    if estimate.low < estimate.high:
        return estimate
    mean = average_estimates(value, [cell.contrast(a, b) for cell in cells])
    return replace(mean, p=None if value else estimate.p)


def average_estimates(value: Fraction | float, estimates: Sequence[Estimate]) -> Estimate:
    """Estimate the mean of several numbers by the mean of their intervals.

    This is the interval if their errors are the same; independent errors have a narrower one.

    Args:
        value: the mean.
        estimates: the numbers.
    """
    low = math.fsum(estimate.low for estimate in estimates) / len(estimates)
    high = math.fsum(estimate.high for estimate in estimates) / len(estimates)
    return Estimate(value, low, high)


def average_differences(cells: Sequence[Scores], a: str, b: str) -> Fraction:
    """Compute the exact equal-weight mean over cells of row a minus row b."""
    return sum((cell.compute_difference(a, b) for cell in cells), Fraction(0)) / len(cells)


def resample(
    scores: Scores,
    *,
    replicates: int,
    stream: Stream,
    item_stream: Stream | None = None,
    nested: bool = False,
) -> Resampled:
    """Draw seeds and items with replacement, the same for all rows.

    Args:
        scores: the scores.
        replicates: B.
        stream: the random stream.
        item_stream: the random stream of the items, to share their draws with a different cell;
            default: a child of ``stream``.
        nested: draw items separately for every drawn seed; default: once for all seeds of a
            replicate.
    """
    columns = scores.stack_columns()
    seeds = len(scores.seeds)
    drawn = draw_seeds(seeds, replicates, stream)
    base_stream = item_stream or stream.child("items")
    if nested:
        parts = [(drawn[:, [slot]], base_stream.child(str(slot))) for slot in range(seeds)]
    else:
        parts = [(drawn, base_stream)]
    totals = np.zeros((replicates, len(scores.rows)))
    for seeds_drawn, part_stream in parts:
        sums = sum_draws(columns, replicates, part_stream.generator())
        by_seed = sums.reshape(replicates, len(scores.rows), seeds)
        totals += (by_seed * _count_draws(seeds_drawn, seeds)[:, None]).sum(axis=2)
    return Resampled(scores, dict(zip(scores.rows, totals.T.astype(np.int64), strict=True)))


def resample_cells(
    cells: Sequence[Scores], *, replicates: int, stream: Stream, nested: bool = False
) -> list[Resampled]:
    """Resample several cells jointly. The order of the cells does not matter.

    A replicate draws seeds once for all cells, and items once for all cells with the same audit, so
    that the effect of an item or a seed on several cells occurs in the same replicates. Different
    audits are drawn independently. The first audit, by its ids, gets the draws of a single cell.

    Args:
        cells: the cells, all with the same seeds.
        replicates: B.
        stream: the random stream.
        nested: see ``resample``.

    Raises:
        ValueError: the seeds differ between cells.
    """
    if len({tuple(sorted(cell.seeds.tolist())) for cell in cells}) > 1:
        raise ValueError("the seeds of all cells must be the same")
    audits = [tuple(sorted(cell.items.tolist())) for cell in cells]
    streams = {
        ids: stream.child(f"items/{place}" if place else "items")
        for place, ids in enumerate(sorted(set(audits)))
    }
    return [
        resample(
            cell, replicates=replicates, stream=stream, item_stream=streams[ids], nested=nested
        )
        for cell, ids in zip(cells, audits, strict=True)
    ]


def resample_environments(
    environments: Mapping[str, Scores], a: str, b: Sequence[str], *, replicates: int, stream: Stream
) -> dict[str, NDArray[np.float64]]:
    """Resample the equal-weight mean over environments of row a minus each of some rows.

    An environment is a task, a model and a budget, with one checkpoint per seed and its own audit.
    A replicate draws E environments with replacement, then resamples each. An environment that is
    drawn twice is resampled twice.

    Args:
        environments: at least one, by name.
        a: the row that is compared.
        b: the rows that it is compared with.
        replicates: B.
        stream: the random stream.

    Returns:
        By the name of the other row, the replicates of the mean, shape (B,).

    Raises:
        ValueError: there is no environment.
    """
    if not environments:
        raise ValueError("expected at least one environment")
    names = sorted(environments)
    count = len(environments)
    drawn = stream.child("environments").generator().integers(count, size=(replicates, count))
    sums = {other: np.zeros(replicates) for other in b}
    for place, name in enumerate(names):
        rows = np.nonzero(drawn == place)[0]
        if len(rows):
            scores = environments[name]
            resampled = resample(scores, replicates=len(rows), stream=stream.child(name))
            for other in b:
                np.add.at(sums[other], rows, resampled.subtract(a, other) / scores.decisions)
    return {other: total / count for other, total in sums.items()}


def resample_means(
    columns: NDArray[np.float64],
    clusters: NDArray[np.int64],
    *,
    replicates: int,
    stream: Stream,
) -> NDArray[np.float64]:
    """Compute column means over clusters of items that are drawn with replacement.

    A replicate draws as many clusters as there are, the same for every column. A cluster is drawn
    with all its items, and the mean is over the items drawn. If there are few kinds of clusters
    (equal sums and sizes), the number of draws of each kind is drawn from the multinomial
    distribution, which is equivalent and faster.

    Args:
        columns: shape (P, M), real numbers.
        clusters: shape (P,): each item's cluster, numbered from 0 without gaps; independent items
            are clusters of one item.
        replicates: B.
        stream: the random stream.

    Returns:
        Shape (B, M).
    """
    sizes = np.bincount(clusters).astype(np.float64)
    sums = [np.bincount(clusters, weights=column) for column in columns.T]
    table = np.stack([*sums, sizes], axis=1)
    generator = stream.child("items").generator()
    kinds, first, times = np.unique(table, axis=0, return_index=True, return_counts=True)
    if len(kinds) * _MIN_CLUSTERS_PER_KIND <= len(table):
        # In the order of the items, so that a change of sign does not change the draws.
        order = np.argsort(first)
        drawn = generator.multinomial(len(table), times[order] / len(table), size=replicates)
        totals = drawn.astype(np.float64) @ kinds[order]
    else:
        totals = sum_draws(table, replicates, generator)
    means: NDArray[np.float64] = totals[:, :-1] / totals[:, -1:]
    return means


def sum_draws(
    columns: NDArray[np.float64], replicates: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Sum columns over P draws of their P rows, with replacement, for each replicate.

    Sums of whole numbers below 2^53 are exact in any order.

    Args:
        columns: shape (P, M).
        replicates: B.
        generator: the source of draws; further replicates continue its sequence.

    Returns:
        Shape (B, M).
    """
    weighted = _draw_weights(len(columns), replicates, generator)
    return np.concatenate([weights @ columns for weights in weighted])


def draw_seeds(seeds: int, replicates: int, stream: Stream) -> NDArray[np.int64]:
    """Draw S seed indices for each replicate, shape (B, S)."""
    return stream.child("seeds").generator().integers(seeds, size=(replicates, seeds))


def draw_seed_weights(seeds: int, replicates: int, stream: Stream) -> NDArray[np.float64]:
    """Draw seeds and count how often each replicate drew each of them, shape (B, S)."""
    return _count_draws(draw_seeds(seeds, replicates, stream), seeds)


def _draw_weights(
    items: int, replicates: int, generator: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Yield arrays of shape (chunk, P): how often each replicate drew each item in P draws.

    The rows depend only on the generator, not on the size of the chunks.
    """
    chunk = max(1, _CHUNK_VALUES // items)
    for start in range(0, replicates, chunk):
        size = min(chunk, replicates - start)
        yield _count_draws(generator.integers(items, size=(size, items)), items)


def _count_draws(draws: NDArray[np.int64], kinds: int) -> NDArray[np.float64]:
    """Count the draws of each row: from (B, n) indices below ``kinds`` to (B, kinds) counts."""
    rows = len(draws)
    offset = np.arange(rows)[:, None] * kinds
    counts = np.bincount((draws + offset).ravel(), minlength=rows * kinds)
    return counts.reshape(rows, kinds).astype(np.float64)
