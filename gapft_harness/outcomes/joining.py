"""Join the outcomes of several evaluations by the content of their documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.errors import UserError, quote_unprintable
from gapft_harness.outcomes.logs import Evaluation
from gapft_harness.outcomes.table import Outcomes

#: An item: task, content hash, and the document's number if the content is not unique.
Item = tuple[str, bytes, str]
_ADVICE = (
    "Documents of which some fields differ (shuffled options, logs of different tools) are joined "
    "on others: --on FIELD, --on FIELD=FIELD"
)


@dataclass(frozen=True, slots=True)
class Joined:
    """The documents in all evaluations, sorted by content, so the order of rows has no effect.

    Attributes:
        items: the P items.
        before: shape (P,), documents of BEFORE.
        after: for every evaluation after, its documents, shape (P,).
        left_out: number of items that are not in all evaluations.
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
            f"{_format_tasks(only)}); --task NAME selects tasks, --task BEFORE=AFTER pairs two "
            "names of one task"
        )
    versions = {log.task: log for log in before.logs}
    for log_after in after.logs:
        log_before = versions[log_after.task]
        has_versions = None not in (log_before.version, log_after.version)
        if has_versions and log_before.version != log_after.version:
            raise UserError(
                f"task {log_before.task}: {log_before.path} has version {log_before.version}, "
                f"{log_after.path} has version {log_after.version}, so prompts or scores may "
                "differ; evaluate both with one version"
            )


def join(before: Outcomes, afters: Sequence[Outcomes], *, common: bool) -> Joined:
    """Join documents by task and content.

    Documents whose content occurs more than once in an evaluation are distinguished by number.

    Args:
        before: the outcomes before.
        afters: the outcomes of each evaluation after.
        common: drop items that are not in all evaluations.

    Raises:
        UserError: no common document, or a missing one without ``common``.
    """
    tasks = [{log.task for log in outcomes.logs} for outcomes in (before, *afters)]
    has_task_names = "" not in tasks[0] and all(run_tasks == tasks[0] for run_tasks in tasks)
    indices = [_index_items(outcomes, with_task=has_task_names) for outcomes in (before, *afters)]
    shared = set(indices[0]).intersection(*indices[1:])
    if not shared:
        raise UserError(
            f"{before.describe_place(0)} and {afters[0].describe_place(0)}: no common document; "
            f"check that both were run on the same data. {_ADVICE}"
        )
    if not common:
        for outcomes, index in zip(afters, indices[1:], strict=True):
            _refuse_missing(before, indices[0], outcomes, index)
    items = tuple(sorted(shared))
    by_document = [np.array([index[item] for item in items], dtype=np.int64) for index in indices]
    return Joined(
        items=items,
        before=by_document[0],
        after=tuple(by_document[1:]),
        left_out=len(set().union(*indices)) - len(items),
        repeated=sum(bool(number) for _, _, number in items),
    )


def _index_items(outcomes: Outcomes, *, with_task: bool) -> dict[Item, int]:
    """Map every item to its document; documents without a number are skipped."""
    tasks = [log.task if with_task else "" for log in outcomes.logs]
    keys = [(tasks[n], content) for n, content in zip(outcomes.log, outcomes.contents, strict=True)]
    counts = Counter(keys)
    return {
        (task, content, str(outcomes.numbers[row]) if counts[task, content] > 1 else ""): row
        for row, ((task, content), value) in enumerate(
            zip(keys, outcomes.values.tolist(), strict=True)
        )
        if value == value  # not NaN
    }


def _refuse_missing(
    before: Outcomes, before_index: dict[Item, int], after: Outcomes, after_index: dict[Item, int]
) -> None:
    missing = [
        _describe_missing(after, after_index, before, before_index),
        _describe_missing(before, before_index, after, after_index),
    ]
    if message := "; ".join(filter(None, missing)):
        raise UserError(
            f"{message}; check that both were run on the same data with the same --limit, or "
            f"compare only the documents that all logs contain and score: --common. {_ADVICE}"
        )


def _describe_missing(
    outcomes: Outcomes, own_index: dict[Item, int], full: Outcomes, full_index: dict[Item, int]
) -> str:
    absent = sorted(full_index[item] for item in full_index.keys() - own_index.keys())
    if not absent:
        return ""
    number = quote_unprintable(str(full.numbers[absent[0]]))
    return (
        f"{outcomes.logs[0].path} lacks {len(absent)} of {len(full_index)} documents (the first: "
        f"{full.describe_place(absent[0])}, doc_id {number})"
    )


def _format_tasks(tasks: Sequence[str]) -> str:
    names = ", ".join(map(quote_unprintable, tasks[:5]))
    return names if len(tasks) <= 5 else f"{names} and {len(tasks) - 5} more"
