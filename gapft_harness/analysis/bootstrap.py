"""Percentile intervals from replicates that resample seeds and audit items (Section 4.1).

One replicate draws training seeds, the same for every condition (seed 13 stays paired with seed
13), and audit items, the same for every seed and condition: an item that is easy under one seed is
easy under the next, and drawing items apart for each seed (``nested``) understates the spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import Stream

#: Item weights held in memory at once (float64 values): half a MiB, which stays in the cache.
_CHUNK_VALUES = 1 << 16
#: Clusters are drawn by their kinds where there are this many times as many of them as of kinds.
_FEW_KINDS = 8
#: What lies outside a 95% interval on each side.
_TAIL = Fraction(1, 40)


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided percentile interval, in the unit of its statistic (a fraction)."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Difference:
    """What the replicates say of a difference.

    Attributes:
        interval: its 95% interval.
        p_value: two-sided, see ``p_value``; None where the replicates are too few for one.
    """

    interval: Interval
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Replicates:
    """Bootstrap replicates of every condition's Pass@1 and of the source's.

    Counts are kept, not means, so that a difference is exact: a condition minus itself is 0.

    Attributes:
        conditions: shape (B, C), correct decisions summed over the drawn seeds and items.
        source: shape (B,), the same of the source's one greedy decode, counted once a drawn seed.
        decisions: S P, what a count is divided by.
    """

    conditions: NDArray[np.int64]
    source: NDArray[np.int64]
    decisions: int

    def pass_at_1(self, condition: int) -> Interval:
        """The interval of one condition's mean Pass@1."""
        return self._interval(self.conditions[:, condition])

    def gain(self, condition: int) -> Difference:
        """One condition's Pass@1 minus the source's, on the same items."""
        return self._difference(self.conditions[:, condition] - self.source)

    def contrast(self, a: int, b: int) -> Difference:
        """Condition a minus condition b, paired by seed and item."""
        return self._difference(self.conditions[:, a] - self.conditions[:, b])

    def _interval(self, counts: NDArray[np.int64]) -> Interval:
        return percentile_interval(counts, self.decisions)

    def _difference(self, counts: NDArray[np.int64]) -> Difference:
        return Difference(self._interval(counts), p_value(counts))


def percentile_interval(values: NDArray[np.number[Any]], per: int = 1) -> Interval:
    """The 95% percentile interval of a statistic's replicates, shape (B,), divided by ``per``."""
    ordered = np.sort(values)
    low, high = (_quantile(ordered, level) / per for level in (_TAIL, 1 - _TAIL))
    return Interval(float(low), float(high))


def p_value(values: NDArray[np.number[Any]]) -> float | None:
    """The two-sided p value of a difference from its replicates, shape (B,).

    The smallest level whose percentile interval excludes zero, so it is below 0.05 exactly where
    ``percentile_interval`` excludes zero. B replicates can tell nothing below 2 / (B + 1), which is
    given for less. None where that is 0.05 or more.
    """
    least = Fraction(2, len(values) + 1)
    if least >= 2 * _TAIL:
        return None
    ordered = np.sort(values)
    below, above = _at_most_zero(ordered), _at_most_zero(-ordered[::-1])
    return float(min(Fraction(1), max(least, 2 * min(below, above))))


def _quantile(ordered: NDArray[np.number[Any]], level: Fraction) -> Fraction:
    """The quantile by linear interpolation, as ``numpy.quantile``, but exact: its sign counts."""
    position = level * (len(ordered) - 1)
    at = math.floor(position)
    low, high = (Fraction(float(v)) for v in (ordered[at], ordered[math.ceil(position)]))
    return low + (position - at) * (high - low)


def _at_most_zero(ordered: NDArray[np.number[Any]]) -> Fraction:
    """The largest level whose quantile is zero or less; 0 where none is."""
    last = int(np.searchsorted(ordered, 0, side="right")) - 1
    if last < 0:
        return Fraction(0)
    if last == len(ordered) - 1:
        return Fraction(1)
    low, high = (Fraction(float(v)) for v in ordered[last : last + 2])
    return (last - low / (high - low)) / (len(ordered) - 1)


def replicate(
    passed: NDArray[np.bool_],
    source_passed: NDArray[np.bool_],
    *,
    item_ids: NDArray[np.str_],
    seeds: NDArray[np.int64],
    replicates: int,
    stream: Stream,
    items: Stream | None = None,
    nested: bool = False,
) -> Replicates:
    """Draws bootstrap replicates. The order of items and of seeds changes nothing.

    Args:
        passed: shape (C, S, P): condition, training seed, audit item.
        source_passed: shape (P,): the source's greedy decode.
        item_ids: shape (P,), distinct; items are sorted by them before drawing.
        seeds: shape (S,), distinct; likewise.
        replicates: B.
        stream: the randomness.
        items: that of the items, where they are drawn as another cell's; default: a part of it.
        nested: whether every seed that is drawn has a draw of items of its own; default: one draw
            for all seeds of a replicate.

    Raises:
        ValueError: shapes that do not fit, or repeated ids or seeds.
    """
    conditions, n_seeds, count = passed.shape
    if source_passed.shape != (count,) or item_ids.shape != (count,) or seeds.shape != (n_seeds,):
        raise ValueError(
            f"{passed.shape} decisions do not fit {source_passed.shape} of the source, "
            f"{item_ids.shape} items and {seeds.shape} seeds"
        )
    if len(np.unique(item_ids)) != count or len(np.unique(seeds)) != n_seeds:
        raise ValueError("item ids and seeds must be distinct")
    by_id, by_seed = np.argsort(item_ids), np.argsort(seeds)
    ordered = passed[:, by_seed][:, :, by_id].reshape(conditions * n_seeds, count)
    outcomes = np.vstack([ordered, source_passed[by_id][None]]).T.astype(np.float64)

    drawn = seed_draws(n_seeds, replicates, stream)
    of_items = items or stream.child("items")
    if nested:
        parts = [(drawn[:, [slot]], of_items.child(str(slot))) for slot in range(n_seeds)]
    else:
        parts = [(drawn, of_items)]
    correct = np.zeros((replicates, conditions), dtype=np.int64)
    of_source = np.zeros(replicates, dtype=np.int64)
    for seeds_drawn, of_part in parts:
        # Whole numbers below 2^53: the products are exact in any order of summation.
        weighted = item_weights(count, replicates, of_part.generator())
        sums = np.concatenate([weights @ outcomes for weights in weighted])
        by_arm = sums[:, :-1].reshape(replicates, conditions, n_seeds)
        of_seeds = _weights(seeds_drawn, n_seeds)[:, None]
        correct += (by_arm * of_seeds).sum(axis=2).astype(np.int64)
        of_source += (sums[:, -1] * seeds_drawn.shape[1]).astype(np.int64)
    return Replicates(correct, of_source, n_seeds * count)


def resampled_means(
    columns: NDArray[np.float64],
    clusters: NDArray[np.int64],
    *,
    replicates: int,
    stream: Stream,
) -> NDArray[np.float64]:
    """Means of columns over clusters of items drawn with replacement, the same for every column.

    A replicate draws as many clusters as there are; a cluster brings all its items, so the mean is
    over as many items as they have. Clusters of equal sums and sizes are drawn as one kind, where
    there are few kinds: how often each kind is drawn is multinomial, which is the same and quick.

    Args:
        columns: shape (P, M), numbers of any kind.
        clusters: shape (P,): each item's cluster, numbered from 0 without a gap; an item each where
            items are independent.
        replicates: B.
        stream: the randomness.

    Returns:
        Shape (B, M).
    """
    sizes = np.bincount(clusters).astype(np.float64)
    sums = [np.bincount(clusters, weights=column) for column in columns.T]
    told = np.stack([*sums, sizes], axis=1)
    generator = stream.child("items").generator()
    kinds, first, times = np.unique(told, axis=0, return_index=True, return_counts=True)
    if len(kinds) * _FEW_KINDS <= len(told):
        order = np.argsort(first)  # the order of items, so that a change of sign changes no draw
        drawn = generator.multinomial(len(told), times[order] / len(told), size=replicates)
        totals = drawn.astype(np.float64) @ kinds[order]
    else:
        weighted = item_weights(len(told), replicates, generator)
        totals = np.concatenate([weights @ told for weights in weighted])
    means: NDArray[np.float64] = totals[:, :-1] / totals[:, -1:]
    return means


def seed_draws(seeds: int, replicates: int, stream: Stream) -> NDArray[np.int64]:
    """Shape (B, S): the numbers of the seeds that each replicate drew."""
    return stream.child("seeds").generator().integers(seeds, size=(replicates, seeds))


def seed_weights(seeds: int, replicates: int, stream: Stream) -> NDArray[np.float64]:
    """Shape (B, S): how often each replicate drew each seed, of S draws."""
    return _weights(seed_draws(seeds, replicates, stream), seeds)


def item_weights(
    items: int, replicates: int, generator: np.random.Generator
) -> Iterator[NDArray[np.float64]]:
    """Yields (chunk, P) arrays: how often each replicate drew each item, of P draws.

    The rows depend on the generator alone, not on how they fall into chunks.
    """
    chunk = max(1, _CHUNK_VALUES // items)
    for start in range(0, replicates, chunk):
        size = min(chunk, replicates - start)
        yield _weights(generator.integers(items, size=(size, items)), items)


def _weights(draws: NDArray[np.int64], kinds: int) -> NDArray[np.float64]:
    """Counts each row's draws: (B, n) numbers below ``kinds`` to (B, kinds) multiplicities."""
    rows = len(draws)
    offset = np.arange(rows)[:, None] * kinds
    counts = np.bincount((draws + offset).ravel(), minlength=rows * kinds)
    return counts.reshape(rows, kinds).astype(np.float64)
