"""Percentile intervals from bootstrap replicates over seeds and audit items (Section 4.1).

One replicate draws training seeds, the same for every condition (seed 13 stays paired with seed
13), and audit items, the same for every seed and condition: an item that is easy under one seed is
usually easy under the others, so drawing items separately for each seed (``nested``) understates
the spread.
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

#: Item weights in memory at once (float64 values): half a MiB, which fits into the CPU cache.
_CHUNK_VALUES = 1 << 16
#: Clusters are drawn by kind if there are at least this many times more clusters than kinds.
_FEW_KINDS = 8
#: The probability outside a 95% interval on each side.
_TAIL = Fraction(1, 40)


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided percentile interval, in the unit of its statistic (a fraction)."""

    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether zero is outside the interval."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Difference:
    """The interval and p value of a difference.

    Attributes:
        interval: the 95% interval.
        p_value: the two-sided p value, see ``compute_p_value``; None if there are too few
            replicates.
    """

    interval: Interval
    p_value: float | None


@dataclass(frozen=True, slots=True)
class Replicates:
    """Bootstrap replicates of the Pass@1 of every condition and of the source.

    They are counts, not means, so that differences are exact: a condition minus itself is 0.

    Attributes:
        conditions: shape (B, C), passing decodes summed over the drawn seeds and items.
        source: shape (B,), the same for the source's decodes, counted once per drawn seed.
        decisions: S P r, the divisor of the counts.
    """

    conditions: NDArray[np.int64]
    source: NDArray[np.int64]
    decisions: int

    def pass_at_1(self, condition: int) -> Interval:
        """Compute the interval of one condition's mean Pass@1."""
        return self._interval(self.conditions[:, condition])

    def gain(self, condition: int) -> Difference:
        """Compare one condition's Pass@1 with the source's, on the same items."""
        return self._difference(self.conditions[:, condition] - self.source)

    def contrast(self, a: int, b: int) -> Difference:
        """Compute condition a minus condition b, paired by seed and item."""
        return self._difference(self.conditions[:, a] - self.conditions[:, b])

    def _interval(self, counts: NDArray[np.int64]) -> Interval:
        return compute_interval(counts, self.decisions)

    def _difference(self, counts: NDArray[np.int64]) -> Difference:
        return Difference(self._interval(counts), compute_p_value(counts))


def compute_interval(values: NDArray[np.number[Any]], per: int = 1) -> Interval:
    """Compute the 95% percentile interval of a statistic.

    Args:
        values: shape (B,), the replicates.
        per: a divisor of both ends.
    """
    ordered = np.sort(values)
    low, high = (_interpolate_quantile(ordered, level) / per for level in (_TAIL, 1 - _TAIL))
    return Interval(float(low), float(high))


def compute_p_value(values: NDArray[np.number[Any]]) -> float | None:
    """Compute the two-sided p value of a difference.

    It is the smallest level whose percentile interval excludes zero, so it is below 0.05 exactly
    if ``compute_interval`` excludes zero. B replicates cannot resolve less than 2 / (B + 1), which
    is the lower limit.

    Args:
        values: shape (B,), the replicates.

    Returns:
        The p value; None if its lower limit is 0.05 or more.
    """
    least = Fraction(2, len(values) + 1)
    if least >= 2 * _TAIL:
        return None
    ordered = np.sort(values)
    below, above = _find_zero_level(ordered), _find_zero_level(-ordered[::-1])
    return float(min(Fraction(1), max(least, 2 * min(below, above))))


def _interpolate_quantile(ordered: NDArray[np.number[Any]], level: Fraction) -> Fraction:
    """Compute a quantile by linear interpolation as ``numpy.quantile``, but exactly.

    Rounding could change the sign, which decides whether an interval excludes zero.
    """
    position = level * (len(ordered) - 1)
    lower = math.floor(position)
    low, high = (Fraction(float(v)) for v in (ordered[lower], ordered[math.ceil(position)]))
    return low + (position - lower) * (high - low)


def _find_zero_level(ordered: NDArray[np.number[Any]]) -> Fraction:
    """Find the largest level whose quantile is zero or less; 0 if there is none."""
    last = int(np.searchsorted(ordered, 0, side="right")) - 1
    if last < 0:
        return Fraction(0)
    if last == len(ordered) - 1:
        return Fraction(1)
    low, high = (Fraction(float(v)) for v in ordered[last : last + 2])
    return (last - low / (high - low)) / (len(ordered) - 1)


def draw_replicates(
    passed: NDArray[np.bool_],
    source_passed: NDArray[np.bool_],
    *,
    item_ids: NDArray[np.str_],
    seeds: NDArray[np.int64],
    replicates: int,
    stream: Stream,
    item_stream: Stream | None = None,
    nested: bool = False,
) -> Replicates:
    """Draw bootstrap replicates. The order of items and of seeds does not matter.

    Args:
        passed: shape (C, S, P): condition, training seed, audit item: whether the item's
            deployment decode passed.
        source_passed: shape (P,): the same for the source.
        item_ids: shape (P,), distinct; items are sorted by them before drawing.
        seeds: shape (S,), distinct; seeds are sorted before drawing.
        replicates: B.
        stream: the random stream.
        item_stream: the random stream of the items, to share their draws with a different cell;
            default: a child of ``stream``.
        nested: draw items separately for every drawn seed; default: once for all seeds of a
            replicate.

    Raises:
        ValueError: shapes do not match, or ids or seeds repeat.
    """
    conditions, n_seeds, count = passed.shape
    if source_passed.shape != (count,) or item_ids.shape != (count,) or seeds.shape != (n_seeds,):
        raise ValueError(
            f"shapes do not match: decisions {passed.shape}, source {source_passed.shape}, items "
            f"{item_ids.shape}, seeds {seeds.shape}"
        )
    if len(np.unique(item_ids)) != count or len(np.unique(seeds)) != n_seeds:
        raise ValueError("item ids and seeds must be distinct")
    by_id, by_seed = np.argsort(item_ids), np.argsort(seeds)
    ordered = passed[:, by_seed][:, :, by_id].reshape(conditions * n_seeds, count)
    outcomes = np.vstack([ordered, source_passed[by_id][None]]).T.astype(np.float64)

    drawn = draw_seeds(n_seeds, replicates, stream)
    base_stream = item_stream or stream.child("items")
    if nested:
        parts = [(drawn[:, [slot]], base_stream.child(str(slot))) for slot in range(n_seeds)]
    else:
        parts = [(drawn, base_stream)]
    correct = np.zeros((replicates, conditions), dtype=np.int64)
    source_correct = np.zeros(replicates, dtype=np.int64)
    for seeds_drawn, part_stream in parts:
        # All values are integers below 2^53, so the sums are exact in any order.
        weighted = draw_item_weights(count, replicates, part_stream.generator())
        sums = np.concatenate([weights @ outcomes for weights in weighted])
        by_arm = sums[:, :-1].reshape(replicates, conditions, n_seeds)
        seed_counts = _count_draws(seeds_drawn, n_seeds)[:, None]
        correct += (by_arm * seed_counts).sum(axis=2).astype(np.int64)
        source_correct += (sums[:, -1] * seeds_drawn.shape[1]).astype(np.int64)
    return Replicates(correct, source_correct, n_seeds * count)


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
    if len(kinds) * _FEW_KINDS <= len(table):
        # In the order of the items, so that a change of sign does not change the draws.
        order = np.argsort(first)
        drawn = generator.multinomial(len(table), times[order] / len(table), size=replicates)
        totals = drawn.astype(np.float64) @ kinds[order]
    else:
        weighted = draw_item_weights(len(table), replicates, generator)
        totals = np.concatenate([weights @ table for weights in weighted])
    means: NDArray[np.float64] = totals[:, :-1] / totals[:, -1:]
    return means


def draw_seeds(seeds: int, replicates: int, stream: Stream) -> NDArray[np.int64]:
    """Draw S seed indices for each replicate, shape (B, S)."""
    return stream.child("seeds").generator().integers(seeds, size=(replicates, seeds))


def draw_seed_weights(seeds: int, replicates: int, stream: Stream) -> NDArray[np.float64]:
    """Draw seeds and count how often each replicate drew each of them, shape (B, S)."""
    return _count_draws(draw_seeds(seeds, replicates, stream), seeds)


def draw_item_weights(
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
