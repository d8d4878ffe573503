"""Use stock lm-eval tasks as verifiers: a response passes if the task's own metric is 1.

Each response is judged alone, so a filter that needs several (``majority_vote``) cannot judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_filter
from lm_eval.filters.extraction import RegexFilter

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Verdict
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.lm_eval_bridge.code_eval import is_sandboxed_metric, uses_only_sandbox
from gapft_harness.lm_eval_bridge.discovery import load_lm_eval_task
from gapft_harness.lm_eval_bridge.loaded_task import resolve_task_config
from gapft_harness.lm_eval_bridge.task_file.code_files import find_code_files

#: The filter's name in a task without filters.
_NO_FILTER = "none"
#: The result of lm-eval's regex filters without a match.
_NOT_FOUND = "[invalid]"
#: Number of a record's texts on which ``describe_grading`` tries a metric.
_MAX_TRIED = 16
#: Maximum length of such a text.
_MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task's result for one response.

    Attributes:
        verdict: the verdict by the chosen metric.
        filtered: the filter's result; None where it raised.
        metrics: the result of ``process_results``; empty where it raised.
    """

    verdict: Verdict
    filtered: Any
    metrics: Mapping[str, Any]


class StockTask:
    """A stock lm-eval task that judges responses by its own filter and metric.

    Args:
        name: the name for ``lm_eval --tasks``.
        metric: a metric (``exact_match``), metric and filter as lm-eval prints them
            (``exact_match,strict-match``), or a filter (``,strict-match``). None: the task's first
            metric. Without a filter, the task's first filter is used.
        include_path: a folder of task YAML files, searched before lm-eval's own.
        pass_at: the lowest value of the metric that passes; None: 1 passes, 0 fails, any other
            value is an error.

    Attributes:
        filters: the filters that can judge a single response, in the task's order.
        multi_response_filters: the filters that need several responses.

    Raises:
        UserError: unknown task, metric or filter; a group; a task that does not generate text or
            that runs programs outside the sandbox; a filter that needs several responses; or a
            metric for which lower is better.
    """

    def __init__(
        self,
        name: str,
        metric: str | None = None,
        include_path: str | None = None,
        pass_at: float | None = None,
    ) -> None:
        self._task = _load_task(name, include_path)
        self.filters = _find_single_filters(self._task)
        self.metric, self.filter = _choose_metric_and_filter(self._task, metric, self.filters)
        names = [ensemble.name for ensemble in self._task._filters]
        self.multi_response_filters = tuple(name for name in names if name not in self.filters)
        self.pass_at = pass_at
        self._roots = [Path(include_path).resolve()] if include_path else []

    def compute_fingerprint(self) -> str:
        """Hash the task's YAML and Python files, wherever they are; its data are not included."""
        config = resolve_task_config(self._task)
        code = find_code_files(self._task, self._roots)
        hashes = {name: sha256(file) for name, file in code.items()}
        return content_hash([{**config, "dataset_kwargs": None}, hashes])

    @property
    def judge_description(self) -> str:
        """The rule for a pass, in words."""
        at = "is 1" if self.pass_at is None else f"is {self.pass_at:g} or more"
        filtered = "" if self.filters == (_NO_FILTER,) else f", filter {self.filter}"
        others = ", ".join(name for name in self.filters if name != self.filter)
        return f"a response passes if {self.metric} {at}{filtered}" + (
            f" (the task's others: {others})" if others else ""
        )

    def judge(
        self, documents: Sequence[Mapping[str, Any]], responses: Sequence[str]
    ) -> list[Verdict]:
        """Judge each response; see ``judge_with_filter`` for the arguments."""
        return [outcome.verdict for outcome in self.judge_with_filter(documents, responses)]

    def judge_with_filter(
        self,
        documents: Sequence[Mapping[str, Any]],
        responses: Sequence[str],
        filter: str | None = None,
    ) -> list[TaskOutcome]:
        """Judge each response with a filter of the task and its ``process_results``.

        The filter gets responses without reasoning blocks (``core/thoughts.py``). The value 1 is a
        pass and 0 a fail; any other value, or an exception, is an ``error`` with a reason. With
        ``pass_at``, a value of at least ``pass_at`` is a pass, a lower one a fail, NaN an error.

        Args:
            documents: for each response, the task's document.
            responses: the texts to judge.
            filter: one of ``filters``; None: the chosen one.
        """
        chosen = filter or self.filter
        ensemble = self._find_filter(chosen)
        instances = [
            self._build_instance(doc, text) for doc, text in zip(documents, responses, strict=True)
        ]
        if not instances:
            return []
        try:
            ensemble.apply(instances)
        except Exception as error:
            if len(instances) == 1:
                reason = f"filter {chosen} raised {type(error).__name__}: {error}"
                return [TaskOutcome(Verdict("error", reason), None, {})]
            # One response may be the cause: filter each alone, so only that verdict is an error.
            pairs = zip(documents, responses, strict=True)
            return [self.judge_with_filter([doc], [text], chosen)[0] for doc, text in pairs]
        return [self._judge_instance(instance, chosen) for instance in instances]

    def has_answer(self, document: Mapping[str, Any], response: str) -> bool:
        """Return whether the filter finds an answer in a response (not "[invalid]" or empty)."""
        ensemble = self._find_filter(self.filter)
        instance = self._build_instance(document, response)
        try:
            ensemble.apply([instance])
        except Exception:  # a filter may raise anything; the verdict reports it
            return False
        filtered = instance.filtered_resps[self.filter]
        return self.read_answer(filtered) is not None

    def can_extract(self, filter: str) -> bool:
        """Return whether a filter extracts an answer, and does not return the complete response."""
        steps = _list_filter_steps(self._task).get(filter, ())
        classes = [get_filter(step["function"]) for step in steps]
        return any(
            isinstance(step_class, type) and issubclass(step_class, RegexFilter)
            for step_class in classes
        )

    def read_answer(self, filtered: Any) -> str | None:
        """Return the answer in a filter's result for one response; None if it found none."""
        texts = filtered if isinstance(filtered, list | tuple) else [filtered]
        stripped = [str(text).strip() for text in texts]
        has_answer = any(text not in ("", _NOT_FOUND) for text in stripped)
        return "\n".join(stripped) if has_answer else None

    def _find_filter(self, name: str) -> Any:
        return next(ensemble for ensemble in self._task._filters if ensemble.name == name)

    def _build_instance(self, document: Mapping[str, Any], response: str) -> Instance:
        return Instance(
            request_type="generate_until",
            doc=dict(document),
            arguments=("", {}),
            idx=0,
            task_name=self._task.config.task,
            doc_id=0,
            resps=[remove_thoughts(response)],
        )

    def format_target(self, document: Mapping[str, Any]) -> str:
        """Return a document's answer as lm_eval logs it."""
        return str(self._task.doc_to_target(dict(document)))

    def describe_grading(self, document: Mapping[str, Any]) -> str:
        """Describe the problem if the metric gives a document values other than 0 and 1.

        Tries the metric on the document's answer, on a part of it, and on it and other texts of
        the document with words added: a graded metric (F1, ROUGE, BLEU) gives one of these a value
        between 0 and 1. Returns "" if no such value is found.
        """
        try:
            text = self.format_target(document)
        except Exception:  # reported later for a response, with the record's place
            return ""
        longer_texts = [
            f"{part} and more" for part in (text, *_collect_texts(document)[:_MAX_TRIED])
        ]
        for response in (text, text[: len(text) // 2], *longer_texts):
            (outcome,) = self.judge_with_filter([document], [response])
            if self.metric in outcome.metrics and outcome.verdict.status == "error":
                return (
                    f"{outcome.verdict.reason} for the response {response!r:.60}; expected 0 or 1; "
                    "set the lowest value that passes (--set verifier.params.pass_at=0.5), or "
                    "choose a metric of 0 and 1 (verifier.params.metric)"
                )
        return ""

    def _judge_instance(self, instance: Instance, filter_name: str) -> TaskOutcome:
        filtered = instance.filtered_resps[filter_name]
        try:
            results = dict(self._task.process_results(instance.doc, [filtered]))
        except Exception as error:
            reason = f"process_results raised {type(error).__name__}: {error}"
            return TaskOutcome(Verdict("error", reason), filtered, {})
        if self.metric not in results:
            names = ", ".join(map(str, results))
            reason = f"process_results returned no {self.metric}; found: {names}"
            return TaskOutcome(Verdict("error", reason), filtered, results)
        return TaskOutcome(self._decide(results[self.metric], filtered), filtered, results)

    def _decide(self, value: Any, answer: Any) -> Verdict:
        try:
            number = float(value)
            if math.isnan(number):
                raise ValueError
            threshold = self.pass_at
            passed = {0.0: False, 1.0: True}[number] if threshold is None else number >= threshold
        except (TypeError, ValueError, KeyError, OverflowError):
            expected = "expected 0 or 1" if self.pass_at is None else "expected a number"
            return Verdict("error", f"{self.metric} is {value!r:.60}, {expected}")
        return (
            Verdict("pass")
            if passed
            else Verdict("fail", f"{self.metric} {number:.4g} for {answer!r:.60}")
        )


def _collect_texts(value: Any) -> list[str]:
    """Collect the texts of a record that may be answers, in their order."""
    if isinstance(value, str):
        return [value] if 0 < len(value) <= _MAX_CHARACTERS else []
    if isinstance(value, Mapping):
        value = list(value.values())
    return (
        [text for item in value for text in _collect_texts(item)] if isinstance(value, list) else []
    )


def _load_task(name: str, include_path: str | None) -> Any:
    """Load one generation task by name, with its data."""
    task, _ = load_lm_eval_task(name, [Path(include_path)] if include_path else [])
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(
            f"task {name!r}: output_type is {task.OUTPUT_TYPE}; expected generate_until, since "
            "its metric judges generated text"
        )
    if getattr(task.config, "unsafe_code", False) and not uses_only_sandbox(task):
        raise UserError(
            f"task {name!r}: runs the model's programs without a sandbox (unsafe_code, without "
            "code_eval); judge them with the verifier program_tests (docs/verifiers.md)"
        )
    return task


def _find_single_filters(task: Any) -> tuple[str, ...]:
    """List the filters that can judge a single response, in their order."""
    steps = _list_filter_steps(task)
    return tuple(
        e.name
        for e in task._filters
        if not any(map(_needs_several_responses, steps.get(e.name, ())))
    )


def _list_filter_steps(task: Any) -> dict[str, list[Mapping[str, Any]]]:
    """List the steps of each filter, as its YAML declares them."""
    return {
        entry["name"]: entry["filter"]
        for entry in task.config.filter_list or []
        if "filter" in entry
    }


def _needs_several_responses(step: Mapping[str, Any]) -> bool:
    return step["function"] == "majority_vote" or int(step.get("k", 1)) > 1


def _list_metric_names(entry: Mapping[str, Any]) -> list[str]:
    """List the names under which lm-eval reports an entry of a task's metric_list."""
    metric = entry["metric"]
    if is_sandboxed_metric(metric) and "k" in entry:  # code_eval reports Pass@k for each k
        ks = entry["k"] if isinstance(entry["k"], list) else [entry["k"]]
        return [f"pass@{k}" for k in ks]
    return [metric if isinstance(metric, str) else metric.__name__]


def _choose_metric_and_filter(
    task: Any, metric: str | None, single_filters: Sequence[str]
) -> tuple[str, str]:
    """Choose the metric and filter that decide a verdict; see ``StockTask`` for ``metric``."""
    filters = [ensemble.name for ensemble in task._filters]
    metric_name, _, filter_name = (metric or "").partition(",")
    entries = [entry for entry in task.config.metric_list or [] if "metric" in entry]
    metric_names = [name for entry in entries for name in _list_metric_names(entry)]
    # The metric
    if not metric_name:
        if not metric_names:
            raise UserError(
                f"task {task.config.task!r}: no metric_list; give the metric's name. A task with "
                "metadata.gapft needs class: !function gapft_harness.lm_eval_bridge.task.GapTask"
            )
        metric_name = metric_names[0]
    elif metric_names and metric_name not in metric_names:
        hint = did_you_mean(metric_name, metric_names)
        if metric_name in filters:
            hint = f"it is a filter: write {f'{metric_names[0]},{metric_name}'!r}"
        raise UserError(f"task {task.config.task!r}: unknown metric {metric_name!r}; {hint}")
    # The filter
    filter_name = filter_name or filters[0]
    if filter_name not in filters:
        raise UserError(
            f"task {task.config.task!r}: unknown filter {filter_name!r}; "
            f"{did_you_mean(filter_name, filters)}"
        )
    if filter_name not in single_filters:
        others = ", ".join(single_filters) or "(none)"
        raise UserError(
            f"task {task.config.task!r}: filter {filter_name!r} needs several responses, but each "
            f"response is judged alone; filters that judge one response: {others}"
        )
    if task.higher_is_better().get(metric_name) is False:
        raise UserError(
            f"task {task.config.task!r}: metric {metric_name!r}: lower is better; expected a "
            "metric for which higher is better"
        )
    return metric_name, filter_name
