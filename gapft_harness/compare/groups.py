"""Find lm_eval's groups of tasks: the tasks in a group's mean, and their weights.

Results files have the numbers of a group and of its tasks, but not whether tasks are weighted by
documents (``weight_by_size``) or equally. This module computes both means and compares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.compare.findings import Aggregate
from gapft_harness.outcomes.logs import Evaluation
from gapft_harness.outcomes.table import Metric

#: Tolerance between a group's number and the recomputed mean.
_ROUNDING = 1e-9


def find_aggregates(
    runs: Sequence[Evaluation], figures: Mapping[str, Metric]
) -> tuple[list[Aggregate], list[str]]:
    """Find the groups whose mean can be compared, and a note on each that cannot.

    Args:
        runs: the runs, BEFORE first.
        figures: by task, the compared metric.
    """
    comparable, left_out = [], []
    by_group: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for facts in {id(log.facts): log.facts for log in run.logs}.values():
            for name in facts.get("groups", {}):
                by_group.setdefault(name, []).append(facts)
    for name, facts_list in by_group.items():
        leaves = list(_iterate_tasks(name, facts_list[0].get("group_subtasks", {})))
        compared = [task for task in leaves if task in figures]
        if not compared:
            continue
        keys = {f"{figures[task].metric},{figures[task].filter}" for task in compared}
        key = keys.pop()
        members = [task for task in leaves if key in _read_numbers(facts_list[0], task)]
        if not set(members) <= set(figures):
            continue  # --task selected some of its tasks
        logarithms = any(figures[task].negative_log for task in compared)
        if keys or logarithms or key not in facts_list[0]["groups"][name]:
            left_out.append(
                f"group {name} is left out: lm_eval's results file has no mean of the compared "
                "metrics for it; --metric chooses one metric for all tasks"
            )
            continue
        weightings = [
            is_weighted
            for is_weighted in (True, False)
            if all(_is_mean(run_facts, name, key, is_weighted) for run_facts in facts_list)
        ]
        if not weightings:
            left_out.append(
                f"group {name} is left out: its {key} in lm_eval's results file is not the mean of "
                "its tasks"
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
