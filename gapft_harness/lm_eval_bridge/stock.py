"""Stock lm-eval tasks as verifiers: a response passes if the task's own metric gives it 1."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import Verdict


class StockTask:
    """A stock lm-eval task that judges responses by its own filter and metric.

    Args:
        name: as ``lm_eval --tasks`` takes it.
        metric: ``exact_match``, ``exact_match,strict-match`` as lm-eval prints it, or None for the
            first metric of the task's list. Without a filter's name, its first filter.
        include_path: a folder of task YAML files, searched before lm-eval's own.

    Raises:
        UserError: there is no such task, metric or filter; it is a group; it does not generate
            text; or the metric's lower values are the better.
    """

    def __init__(
        self, name: str, metric: str | None = None, include_path: str | None = None
    ) -> None:
        self._task = _load(name, include_path)
        self._metric, self._filter = _metric_and_filter(self._task, metric)

    def verdicts(
        self, documents: Sequence[Mapping[str, Any]], responses: Sequence[str]
    ) -> list[Verdict]:
        """Judges each response by the task's filter and ``process_results``.

        1 is a pass, 0 a fail; any other value, and an exception, is an ``error`` with its reason.

        Args:
            documents: the task's records, one for each response.
            responses: what the model wrote, stop strings removed.
        """
        ensemble = next(e for e in self._task._filters if e.name == self._filter)
        instances = [
            Instance(
                request_type="generate_until",
                doc=dict(doc),
                arguments=("", {}),
                idx=0,
                resps=[text],
            )
            for doc, text in zip(documents, responses, strict=True)
        ]
        if not instances:
            return []
        try:
            ensemble.apply(instances)
        except Exception as error:
            if len(instances) == 1:
                reason = f"filter {self._filter} raised {type(error).__name__}: {error}"
                return [Verdict("error", reason)]
            # One response may be to blame: filter each alone, so that only its own verdict suffers.
            pairs = zip(documents, responses, strict=True)
            return [self.verdicts([doc], [text])[0] for doc, text in pairs]
        return [_judge(self._task, each, self._metric, self._filter) for each in instances]


def _load(name: str, include_path: str | None) -> Any:
    """Loads one generation task by name, with its data."""
    manager = TaskManager(include_defaults=False, include_path=include_path)
    if include_path is None or name not in manager.all_tasks:
        # lm-eval's own index takes seconds: it is read only when the name is not found without.
        manager = TaskManager(include_path=include_path)
    if name not in manager.all_subtasks:
        if name in manager.all_tasks:
            raise UserError(f"task {name!r} is a group or a tag; name one of its tasks")
        near = difflib.get_close_matches(name, manager.all_subtasks, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`lm_eval ls tasks` lists them"
        raise UserError(f"unknown lm-eval task {name!r}; {hint}")
    task = manager.load(name)["tasks"][name]
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(
            f"task {name!r} has output type {task.OUTPUT_TYPE}; its metric can judge responses "
            "only if it is generate_until"
        )
    return task


def _metric_and_filter(task: Any, metric: str | None) -> tuple[str, str]:
    filters = [ensemble.name for ensemble in task._filters]
    wanted, _, chosen = (metric or "").partition(",")
    known = [entry["metric"] for entry in task.config.metric_list or [] if "metric" in entry]
    known = [name if isinstance(name, str) else name.__name__ for name in known]
    if not wanted:
        if not known:
            raise UserError(f"task {task.config.task!r} has no metric_list: name the metric")
        wanted = known[0]
    elif known and wanted not in known:
        raise UserError(
            f"task {task.config.task!r} has no metric {wanted!r}; {did_you_mean(wanted, known)}"
        )
    chosen = chosen or filters[0]
    if chosen not in filters:
        raise UserError(
            f"task {task.config.task!r} has no filter {chosen!r}; {did_you_mean(chosen, filters)}"
        )
    if task.higher_is_better().get(wanted) is False:
        raise UserError(f"metric {wanted!r} of task {task.config.task!r}: lower is better")
    return wanted, chosen


def _judge(task: Any, instance: Instance, metric: str, chosen: str) -> Verdict:
    found = instance.filtered_resps[chosen]
    try:
        results = dict(task.process_results(instance.doc, [found]))
    except Exception as error:
        return Verdict("error", f"process_results raised {type(error).__name__}: {error}")
    if metric not in results:
        given = ", ".join(map(str, results))
        return Verdict("error", f"process_results gave no {metric}, only {given}")
    value = results[metric]
    try:
        passed = {0.0: False, 1.0: True}[float(value)]
    except (TypeError, ValueError, KeyError, OverflowError):
        return Verdict("error", f"{metric} is {value!r:.60}, neither 0 nor 1")
    return Verdict("pass") if passed else Verdict("fail", f"{metric} 0 for {found!r:.60}")
