"""Join the rows of all logs by the content of their documents."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.reading import RunRows
from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.verdicts.log_files import Evaluation

#: An item: task, content hash, and the document's number if the content is not unique.
Item = tuple[str, bytes, str]


@dataclass(frozen=True, slots=True)
class JoinedRows:
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
            f"{before} has the tasks {_format_tasks(before.tasks)}, {after} has "
            f"{_format_tasks(after.tasks)}; expected the same tasks (only in one: "
            f"{_format_tasks(only)}); --task NAME selects tasks"
        )
    for log_before, log_after in zip(before.logs, after.logs, strict=True):
        has_versions = None not in (log_before.version, log_after.version)
        if has_versions and log_before.version != log_after.version:
            raise UserError(
                f"task {log_before.task}: {log_before.path} has version {log_before.version}, "
                f"{log_after.path} has version {log_after.version}, so prompts or scores may "
                "differ; evaluate both with one version"
            )


def join(before: RunRows, afters: Sequence[RunRows], *, common: bool) -> JoinedRows:
    """Join rows by task and content.

    Rows with a content that occurs more than once in a log are distinguished by ``doc_id``.

    Args:
        before: rows of the run before.
        afters: rows of each run after.
        common: drop items that are not in all logs.

    Raises:
        UserError: a duplicate document, no common document, or a missing one without ``common``.
    """
    tasks = [{log.task for log in rows.logs} for rows in (before, *afters)]
    has_task_names = "" not in tasks[0] and all(run_tasks == tasks[0] for run_tasks in tasks)
    indices = [index_items(rows, with_task=has_task_names) for rows in (before, *afters)]
    shared = set(indices[0]).intersection(*indices[1:])
    everything = set().union(*indices)
    if not shared:
        raise UserError(
            f"{before.describe_place(0)} and {afters[0].describe_place(0)}: no common document; "
            "check that both were run on the same data. If a field differs between runs (shuffled "
            "options), join on other fields: --on FIELD; logs of different tools, on a field of "
            "each: --on FIELD=FIELD"
        )
    if not common:
        for rows, item_index in zip(afters, indices[1:], strict=True):
            _refuse_missing(before, indices[0], rows, item_index)
    items = tuple(sorted(shared))
    by_row = [
        np.array([item_index[item] for item in items], dtype=np.int64) for item_index in indices
    ]
    return JoinedRows(
        items=items,
        before=by_row[0],
        after=tuple(by_row[1:]),
        left_out=len(everything) - len(items),
        repeated=sum(bool(doc_id) for _, _, doc_id in items),
    )


def index_items(rows: RunRows, *, with_task: bool) -> dict[Item, int]:
    """Map every item to its row; rows without a number are skipped.

    Raises:
        UserError: an item has two rows.
    """
    tasks = [log.task if with_task else "" for log in rows.logs]
    keys = [(tasks[log], content) for log, content in zip(rows.log, rows.contents, strict=True)]
    counts = Counter(keys)
    rows_by_item: dict[Item, int] = {}
    for row, (task, content) in enumerate(keys):
        if math.isnan(rows.values[row]):
            continue
        item = (task, content, rows.doc_ids[row] if counts[task, content] > 1 else "")
        if item in rows_by_item:
            raise UserError(
                f"{rows.describe_place(rows_by_item[item])} and {rows.describe_place(row)}: "
                f"duplicate document ({rows.describe_document(row)}); check whether a log was "
                "written twice, or choose fields for --on that identify documents"
            )
        rows_by_item[item] = row
    return rows_by_item


def _refuse_missing(
    before: RunRows, before_index: dict[Item, int], after: RunRows, after_index: dict[Item, int]
) -> None:
    missing = [
        _describe_missing(after, after_index, before, before_index),
        _describe_missing(before, before_index, after, after_index),
    ]
    message = "; ".join(filter(None, missing))
    if message:
        raise UserError(
            f"{message}; check that both were run on the same data with the same --limit, or "
            "compare only the documents that all logs contain and score: --common"
        )


def _describe_missing(
    rows: RunRows, own_index: dict[Item, int], full: RunRows, full_index: dict[Item, int]
) -> str:
    absent = sorted(full_index[item] for item in full_index.keys() - own_index.keys())
    if not absent:
        return ""
    first = absent[0]
    return (
        f"{rows.logs[0].path} lacks {len(absent)} of {len(full_index)} documents (the first: "
        f"{full.describe_place(first)}, {full.describe_document(first)})"
    )


def _format_tasks(tasks: Sequence[str]) -> str:
    names = ", ".join(map(quote_unprintable, tasks[:5]))
    return names if len(tasks) <= 5 else f"{names} and {len(tasks) - 5} more"
