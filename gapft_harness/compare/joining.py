"""Join the rows of all logs by the content of their documents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.reading import Rows
from gapft_harness.core.errors import UserError, plain
from gapft_harness.verdicts.places import Evaluation

#: An item: task, content hash, and the document's number if the content is not unique.
Item = tuple[str, bytes, str]


@dataclass(frozen=True, slots=True)
class Joined:
    """The items in all logs, sorted by content, so the order of rows has no effect.

    Attributes:
        items: the P items.
        before: shape (P,), row indices of BEFORE.
        after: for every run, its row indices, shape (P,).
        left_out: number of items that are not in all logs.
        repeated: number of items whose content occurs more than once.
    """

    items: tuple[Item, ...]
    before: NDArray[np.int64]
    after: tuple[NDArray[np.int64], ...]
    left_out: int
    repeated: int


def refuse_other_tasks(before: Evaluation, after: Evaluation) -> None:
    """Check that tasks and versions are equal, if file names and lm_eval's results show them.

    Raises:
        UserError: they differ.
    """
    if "" in (*before.tasks, *after.tasks):
        return  # a renamed file: the documents decide
    if len(before.logs) == len(after.logs) == 1 and before.logs[0].kind != after.logs[0].kind:
        return  # each tool has its own task names
    if before.tasks != after.tasks:
        only = sorted(set(before.tasks) ^ set(after.tasks))
        raise UserError(
            f"{before} has the tasks {_listed(before.tasks)}, {after} has {_listed(after.tasks)}; "
            f"expected the same tasks (only in one: {_listed(only)}); --task NAME selects tasks"
        )
    for mine, other in zip(before.logs, after.logs, strict=True):
        known = None not in (mine.version, other.version)
        if known and mine.version != other.version:
            raise UserError(
                f"task {mine.task}: {mine.path} has version {mine.version}, {other.path} has "
                f"version {other.version}, so prompts or scores may differ; evaluate both with one "
                "version"
            )


def join(before: Rows, afters: Sequence[Rows], *, common: bool) -> Joined:
    """Join rows by task and content.

    Rows with a content that occurs more than once in a log are distinguished by ``doc_id``. See
    ``mixed`` for logs of different kinds.

    Args:
        before: rows of the run before.
        afters: rows of each run after.
        common: drop items that are not in all logs.

    Raises:
        UserError: a duplicate document, no common document, or a missing one without ``common``.
    """
    tasks = [{log.task for log in rows.logs} for rows in (before, *afters)]
    named = "" not in tasks[0] and all(of == tasks[0] for of in tasks)
    indices = [index(rows, with_task=named) for rows in (before, *afters)]
    shared = set(indices[0]).intersection(*indices[1:])
    everything = set().union(*indices)
    if not shared:
        raise UserError(
            f"{before.place(0)} and {afters[0].place(0)}: no common document; check that both were "
            "run on the same data. If a field differs between runs (shuffled options), join on "
            "other fields: --on FIELD"
        )
    if not common:
        for rows, found in zip(afters, indices[1:], strict=True):
            _refuse_missing(before, indices[0], rows, found)
    items = tuple(sorted(shared))
    by_row = [np.array([found[item] for item in items], dtype=np.int64) for found in indices]
    return Joined(
        items=items,
        before=by_row[0],
        after=tuple(by_row[1:]),
        left_out=len(everything) - len(items),
        repeated=sum(bool(doc_id) for _, _, doc_id in items),
    )


def index(rows: Rows, *, with_task: bool) -> dict[Item, int]:
    """Map every item to its row; rows without a number are skipped.

    Raises:
        UserError: an item has two rows.
    """
    tasks = [log.task if with_task else "" for log in rows.logs]
    keys = [(tasks[log], content) for log, content in zip(rows.log, rows.contents, strict=True)]
    times = Counter(keys)
    found: dict[Item, int] = {}
    for row, (task, content) in enumerate(keys):
        if math.isnan(rows.values[row]):
            continue
        item = (task, content, rows.doc_ids[row] if times[task, content] > 1 else "")
        if item in found:
            raise UserError(
                f"{rows.place(found[item])} and {rows.place(row)}: duplicate document "
                f"({rows.document(row)}); check whether a log was written twice, or choose fields "
                "for --on that identify documents"
            )
        found[item] = row
    return found


def _refuse_missing(
    before: Rows, mine: dict[Item, int], after: Rows, other: dict[Item, int]
) -> None:
    lacking = [_lacking(after, other, before, mine), _lacking(before, mine, after, other)]
    said = "; ".join(filter(None, lacking))
    if said:
        raise UserError(
            f"{said}; check that both were run on the same data with the same --limit, or compare "
            "only the documents that all logs contain and score: --common"
        )


def _lacking(rows: Rows, its: dict[Item, int], full: Rows, all_of: dict[Item, int]) -> str:
    absent = sorted(all_of[item] for item in all_of.keys() - its.keys())
    if not absent:
        return ""
    first = absent[0]
    return (
        f"{rows.logs[0].path} lacks {len(absent)} of {len(all_of)} documents (the first: "
        f"{full.place(first)}, {full.document(first)})"
    )


def _listed(tasks: Sequence[str]) -> str:
    shown = ", ".join(map(plain, tasks[:5]))
    return shown if len(tasks) <= 5 else f"{shown} and {len(tasks) - 5} more"
