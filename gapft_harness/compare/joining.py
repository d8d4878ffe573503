"""Puts the rows of all logs side by side, by the content of their documents."""

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

#: An item: task, content, and the number of the document where content alone does not tell.
Item = tuple[str, bytes, str]


@dataclass(frozen=True, slots=True)
class Joined:
    """The items that all logs hold, sorted by content, so that the order of rows plays no part.

    Attributes:
        items: P of them.
        before: shape (P,), rows of BEFORE.
        after: for every run, shape (P,), its rows.
        left_out: items that not all logs hold.
        repeated: items whose content occurs more than once.
    """

    items: tuple[Item, ...]
    before: NDArray[np.int64]
    after: tuple[NDArray[np.int64], ...]
    left_out: int
    repeated: int


def refuse_other_tasks(before: Evaluation, after: Evaluation) -> None:
    """Compares tasks and versions, where the files' names and lm_eval's results tell them.

    Raises:
        UserError: they differ.
    """
    if "" in (*before.tasks, *after.tasks):
        return  # a renamed file: its documents will tell
    if len(before.logs) == len(after.logs) == 1 and before.logs[0].kind != after.logs[0].kind:
        return  # each tool has names of its own
    if before.tasks != after.tasks:
        only = sorted(set(before.tasks) ^ set(after.tasks))
        raise UserError(
            f"{before} is of {_listed(before.tasks)}, {after} of {_listed(after.tasks)}; expected "
            f"the same tasks in both (of one alone: {_listed(only)}); --task NAME takes some"
        )
    for mine, other in zip(before.logs, after.logs, strict=True):
        known = None not in (mine.version, other.version)
        if known and mine.version != other.version:
            raise UserError(
                f"{mine.path} is of version {mine.version} of task {mine.task}, {other.path} of "
                f"version {other.version}: prompts or scores may differ; evaluate both with one "
                "version"
            )


def join(before: Rows, afters: Sequence[Rows], *, common: bool) -> Joined:
    """Joins by task and content.

    Where a content occurs more than once in a log, its rows are told apart by ``doc_id``. What
    joins logs of different kinds, ``mixed`` says.

    Args:
        before: of the one run before.
        afters: of each run after.
        common: leave out what not all hold.

    Raises:
        UserError: a document twice, none in common, or one missing without ``common``.
    """
    tasks = [{log.task for log in rows.logs} for rows in (before, *afters)]
    named = "" not in tasks[0] and all(of == tasks[0] for of in tasks)
    indices = [index(rows, with_task=named) for rows in (before, *afters)]
    shared = set(indices[0]).intersection(*indices[1:])
    everything = set().union(*indices)
    if not shared:
        raise UserError(
            f"{before.place(0)} and {afters[0].place(0)}: no document in common; were both "
            "run on the same data? If a field differs from run to run (shuffled options), "
            "join on those that do not: --on FIELD"
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
    """The row of every item; a row without a number is none.

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
                f"{rows.place(found[item])} and {rows.place(row)}: the same document twice "
                f"({rows.document(row)}); was a log written to twice, or do the fields of --on not "
                "tell documents apart?"
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
            f"{said}; were both run on the same data with the same --limit? --common compares the "
            "documents that all logs hold and score"
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
