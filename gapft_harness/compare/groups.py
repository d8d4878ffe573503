"""Find lm_eval's groups of tasks: the tasks in a group's mean, and their weights.

Results files have the numbers of a group and of its tasks, but not whether tasks are weighted by
documents (``weight_by_size``) or equally. This module computes both means and compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.outcomes.logs import Evaluation
from gapft_harness.outcomes.table import Metric

#: Tolerance between a group's number and the recomputed mean.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A group of tasks whose mean lm_eval reports.

    Attributes:
        name: the group's name.
        tasks: the tasks in the mean.
        weighted: whether tasks are weighted by their numbers of documents; else equally.
    """

    name: str
    tasks: tuple[str, ...]
    weighted: bool


def find_aggregates(
    runs: Sequence[Evaluation], metrics: Mapping[str, Metric]
) -> tuple[list[Aggregate], list[str]]:
    """Find the groups whose mean can be compared, and a note on each that cannot.

    Args:
        runs: the runs, BEFORE first.
        metrics: by task, the compared metric.
    """
    comparable = []
    left_out = []
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for facts in {id(log.facts): log.facts for log in run.logs}.values():
            for name in facts.get("groups", {}):
                by_group.setdefault(name, []).append(facts)
    for name, facts_list in by_group.items():
        first = facts_list[0]
        leaves = list(_iterate_tasks(name, first.get("group_subtasks", {})))
        compared = {task: metrics[task] for task in leaves if task in metrics}
        keys = {metric.key for metric in compared.values()}
        members = [task for task in leaves if keys & _read_numbers(first, task).keys()]
        if not compared or not {*members} <= {*metrics}:
            continue  # --task selected some of its tasks
        (key, *others) = keys
        logarithms = any(metric.negative_log for metric in compared.values())
        weightings = [
            is_weighted
            for is_weighted in (True, False)
            if all(_is_mean(facts, name, key, is_weighted) for facts in facts_list)
        ]
        if others or logarithms or not weightings:
            left_out.append(
                f"group {name} is left out: lm_eval's results file has no mean of the compared "
                "metrics for it, or another one; --metric chooses one metric for all tasks"
            )
            continue
        comparable.append(Aggregate(name, tuple(members), weightings[0]))
    return comparable, left_out


def _iterate_tasks(
    name: str, children: Mapping[str, Any], seen: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the tasks of a group and of the groups in it."""
    for child in children.get(name, ()):
        if child in children and child not in seen:
            yield from _iterate_tasks(child, children, (*seen, child))
        else:
            yield child


def _read_numbers(facts: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    numbers: Mapping[str, Any] = facts.get("results", {}).get(task, {})
    return numbers


def _is_mean(facts: Mapping[str, Any], group: str, key: str, weighted: bool) -> bool:
    """Return whether a group's number is its tasks' mean, weighted by documents or equally."""
    weighted_values = [
        (numbers[key], _count_documents(facts, task) if weighted else 1)
        for task in _iterate_tasks(group, facts.get("group_subtasks", {}))
        if key in (numbers := _read_numbers(facts, task))
    ]
    total = sum(size for _, size in weighted_values)
    mean = sum(value * size for value, size in weighted_values) / total if total else math.nan
    number = facts["groups"][group].get(key)
    return isinstance(number, int | float) and math.isclose(
        number, mean, rel_tol=_ROUNDING, abs_tol=_ROUNDING
    )


def _count_documents(facts: Mapping[str, Any], task: str) -> int:
    count = facts.get("n-samples", {}).get(task, {}).get("effective", 0)
    return int(_read_numbers(facts, task).get("sample_len", count))
