"""The mean over cells, each counted the same, and its interval (Section 4.2).

A cell is a model on a task. The cells are those of the study and are not resampled: the mean
describes them, and says nothing of other models or tasks (``hierarchical.py`` resamples).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.bootstrap import Replicates, replicate
from gapft_harness.core.streams import Stream


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
    cells: Sequence[Cell], *, replicates: int, stream: Stream
) -> tuple[Replicates, ...]:
    """Bootstrap replicates of every cell, drawn together. The order of cells changes nothing.

    A replicate draws seeds once for all cells, and items once for all cells on one audit: what an
    item or a seed adds to several cells, it adds to them in the same replicates. Audits of other
    items are drawn apart; the first of them, by its ids, as ``replicate`` draws a cell alone.

    Args:
        cells: all with the same seeds.
        replicates: B.
        stream: the randomness.

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
