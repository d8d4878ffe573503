"""Stock lm-eval tasks as verifiers: a response passes if the task's own metric gives it 1.

Each response is judged alone. A filter that takes a vote among several (``majority_vote``) has
nothing to say of one, and cannot judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Verdict
from gapft_harness.core.thoughts import remove_thoughts
from gapft_harness.lm_eval_bridge.code_eval import is_ours, rests_on_ours
from gapft_harness.lm_eval_bridge.discovery import open_task
from gapft_harness.lm_eval_bridge.loaded_task import resolved
from gapft_harness.lm_eval_bridge.task_file.opened_files import code_files
from gapft_harness.lm_eval_bridge.task_file.versions import ensembles, scored

#: The name of a task's filter that gives none a name.
_NO_FILTER = "none"
#: What lm-eval's regex filters give where they find nothing.
_NOT_FOUND = "[invalid]"
#: Texts of a record on which it is tried whether a metric grades, and the most characters of one.
_TRIED, _LONGEST = 16, 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task makes of one response.

    Attributes:
        verdict: by the chosen metric.
        filtered: what the filter left of the response; None where it raised.
        metrics: what ``process_results`` gave; empty where it raised.
    """

    verdict: Verdict
    filtered: Any
    metrics: Mapping[str, Any]


class StockTask:
    """A stock lm-eval task that judges responses by its own filter and metric.

    Args:
        name: as ``lm_eval --tasks`` takes it.
        metric: ``exact_match``, ``exact_match,strict-match`` as lm-eval prints it,
            ``,strict-match``, or None for the first metric of the task's list. Without a filter's
            name, its first filter.
        include_path: a folder of task YAML files, searched before lm-eval's own.
        pass_at: the least value of the metric that passes; None: 1 passes, 0 fails, and any other
            value is an error.

    Attributes:
        filters: all filters that judge a response alone, in the task's order.
        voting: the others.

    Raises:
        UserError: there is no such task, metric or filter; it is a group; it does not generate
            text; it runs programs; the filter needs several responses; or the metric's lower
            values are the better.
    """

    def __init__(
        self,
        name: str,
        metric: str | None = None,
        include_path: str | None = None,
        pass_at: float | None = None,
    ) -> None:
        self._task = _load(name, include_path)
        self.filters = _alone(self._task)
        self.metric, self.filter = _metric_and_filter(self._task, metric, self.filters)
        self.voting = tuple(e.name for e in ensembles(self._task) if e.name not in self.filters)
        self.pass_at = pass_at
        self._roots = [Path(include_path).resolve()] if include_path else []

    def fingerprint(self) -> str:
        """A hash of the task's YAML and Python files, equal wherever they are; not of its data."""
        config = resolved(self._task)
        code = code_files(self._task, self._roots)
        hashes = {name: sha256(file) for name, file in code.items()}
        return content_hash([{**config, "dataset_kwargs": None}, hashes])

    @property
    def judge(self) -> str:
        """How it decides, as people are told."""
        at = "is 1" if self.pass_at is None else f"is {self.pass_at:g} or more"
        filtered = "" if self.filters == (_NO_FILTER,) else f", filter {self.filter}"
        others = ", ".join(name for name in self.filters if name != self.filter)
        return f"a response passes if {self.metric} {at}{filtered}" + (
            f" (the task's others: {others})" if others else ""
        )

    def verdicts(
        self, documents: Sequence[Mapping[str, Any]], responses: Sequence[str]
    ) -> list[Verdict]:
        """Judges each response; arguments as of ``outcomes``."""
        return [outcome.verdict for outcome in self.outcomes(documents, responses)]

    def outcomes(
        self,
        documents: Sequence[Mapping[str, Any]],
        responses: Sequence[str],
        filter: str | None = None,
    ) -> list[Outcome]:
        """Judges each response by a filter of the task and its ``process_results``.

        The filter gets a response without its reasoning blocks (``core/thoughts.py``). 1 is a
        pass, 0 a fail; any other value, and an exception, is an ``error`` with its reason.
        With ``pass_at``, a number from that on is a pass, one below a fail, and NaN an error.
        """
        chosen = filter or self.filter
        ensemble = next(e for e in ensembles(self._task) if e.name == chosen)
        instances = [
            self._instance(doc, text) for doc, text in zip(documents, responses, strict=True)
        ]
        if not instances:
            return []
        try:
            ensemble.apply(instances)
        except Exception as error:
            if len(instances) == 1:
                reason = f"filter {chosen} raised {type(error).__name__}: {error}"
                return [Outcome(Verdict("error", reason), None, {})]
            # One response may be to blame: filter each alone, so that only its own verdict suffers.
            pairs = zip(documents, responses, strict=True)
            return [self.outcomes([doc], [text], chosen)[0] for doc, text in pairs]
        return [self._judge(each, chosen) for each in instances]

    def has_answer(self, document: Mapping[str, Any], response: str) -> bool:
        """Return whether the filter leaves more of a response than its "[invalid]" or nothing."""
        ensemble = next(e for e in ensembles(self._task) if e.name == self.filter)
        instance = self._instance(document, response)
        try:
            ensemble.apply([instance])
        except Exception:  # a filter may raise anything; its verdict says so
            return False
        filtered = instance.filtered_resps[self.filter]
        found = filtered if isinstance(filtered, list | tuple) else [filtered]
        return any(str(text).strip() not in ("", _NOT_FOUND) for text in found)

    def _instance(self, document: Mapping[str, Any], response: str) -> Instance:
        return Instance(
            request_type="generate_until",
            doc=dict(document),
            arguments=("", {}),
            idx=0,
            task_name=self._task.config.task,
            doc_id=0,
            resps=[remove_thoughts(response)],
        )

    def target(self, document: Mapping[str, Any]) -> str:
        """A document's answer as the task shows it, as lm_eval logs it."""
        return str(self._task.doc_to_target(dict(document)))

    def graded(self, document: Mapping[str, Any]) -> str:
        """What is wrong where the metric is seen to give a value that neither passes nor fails.

        Tried on the document's own answer, a part of it, and it and other texts of the document
        with more words: a metric that grades (F1, ROUGE, BLEU) gives one of them a part of 1.
        ``""`` where none is seen.
        """
        try:
            text = self.target(document)
        except Exception:  # what cannot be read is said of a response, with the record's place
            return ""
        more = [f"{each} and more" for each in (text, *_texts(document)[:_TRIED])]
        for tried in (text, text[: len(text) // 2], *more):
            (outcome,) = self.outcomes([document], [tried])
            if self.metric in outcome.metrics and outcome.verdict.status == "error":
                return (
                    f"{outcome.verdict.reason}, for the response {tried!r:.60}: a decision passes "
                    "or fails; give pass_at, the least value that passes (gapft gap --pass-at "
                    "0.5, gapft run --set verifier.params.pass_at=0.5), or a metric of 0 and 1 "
                    "(--metric, verifier.params.metric)"
                )
        return ""

    def _judge(self, instance: Instance, chosen: str) -> Outcome:
        found = instance.filtered_resps[chosen]
        try:
            found, results = scored(self._task, instance, chosen)
        except Exception as error:
            reason = f"process_results raised {type(error).__name__}: {error}"
            return Outcome(Verdict("error", reason), found, {})
        if self.metric not in results:
            given = ", ".join(map(str, results))
            reason = f"process_results gave no {self.metric}, only {given}"
            return Outcome(Verdict("error", reason), found, results)
        return Outcome(self._verdict(results[self.metric], found), found, results)

    def _verdict(self, value: Any, answer: Any) -> Verdict:
        try:
            number = float(value)
            if math.isnan(number):
                raise ValueError
            at = self.pass_at
            passed = {0.0: False, 1.0: True}[number] if at is None else number >= at
        except (TypeError, ValueError, KeyError, OverflowError):
            said = "neither 0 nor 1" if self.pass_at is None else "no number"
            return Verdict("error", f"{self.metric} is {value!r:.60}, {said}")
        return (
            Verdict("pass")
            if passed
            else Verdict("fail", f"{self.metric} {number:.4g} for {answer!r:.60}")
        )


def _texts(value: Any) -> list[str]:
    """The texts within a record that may be answers, as they come."""
    if isinstance(value, str):
        return [value] if 0 < len(value) <= _LONGEST else []
    if isinstance(value, Mapping):
        value = list(value.values())
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []


def _load(name: str, include_path: str | None) -> Any:
    """Load one generation task by name, with its data."""
    task, _ = open_task(name, [Path(include_path)] if include_path else [])
    if task.OUTPUT_TYPE != "generate_until":
        raise UserError(
            f"task {name!r} has output type {task.OUTPUT_TYPE}; its metric can judge responses "
            "only if it is generate_until"
        )
    if getattr(task.config, "unsafe_code", False) and not rests_on_ours(task):
        raise UserError(
            f"task {name!r} runs programs that the model writes, without a sandbox (unsafe_code), "
            "and not by code_eval; judge them by the verifier program_tests (docs/verifiers.md)"
        )
    return task


def _alone(task: Any) -> tuple[str, ...]:
    """The filters that say something of one response, in their order."""
    steps = {
        each["name"]: each["filter"] for each in task.config.filter_list or [] if "filter" in each
    }
    return tuple(e.name for e in ensembles(task) if not any(map(_votes, steps.get(e.name, ()))))


def _votes(step: Mapping[str, Any]) -> bool:
    options = {**step, **step.get("kwargs", {})}  # lm-eval 0.5 has them apart
    return step["function"] == "majority_vote" or int(options.get("k", 1)) > 1


def _reported(entry: Mapping[str, Any]) -> list[str]:
    """The names under which lm-eval reports a metric of a task's list."""
    metric = entry["metric"]
    if is_ours(metric) and "k" in entry:  # one of code_eval's gives Pass@k by k
        ks = entry["k"] if isinstance(entry["k"], list) else [entry["k"]]
        return [f"pass@{k}" for k in ks]
    return [metric if isinstance(metric, str) else metric.__name__]


def _metric_and_filter(task: Any, metric: str | None, alone: Sequence[str]) -> tuple[str, str]:
    filters = [ensemble.name for ensemble in ensembles(task)]
    wanted, _, chosen = (metric or "").partition(",")
    entries = [entry for entry in task.config.metric_list or [] if "metric" in entry]
    known = [name for entry in entries for name in _reported(entry)]
    if not wanted:
        if not known:
            raise UserError(f"task {task.config.task!r} has no metric_list: name the metric")
        wanted = known[0]
    elif known and wanted not in known:
        hint = did_you_mean(wanted, known)
        if wanted in filters:
            hint = f"this is a filter: name it as {f'{known[0]},{wanted}'!r}"
        raise UserError(f"task {task.config.task!r} has no metric {wanted!r}; {hint}")
    chosen = chosen or filters[0]
    if chosen not in filters:
        raise UserError(
            f"task {task.config.task!r} has no filter {chosen!r}; {did_you_mean(chosen, filters)}"
        )
    if chosen not in alone:
        others = ", ".join(alone) or "(none)"
        raise UserError(
            f"task {task.config.task!r}: its filter {chosen!r} takes several responses, and a "
            f"decision is on one; filters that judge one: {others}"
        )
    if task.higher_is_better().get(wanted) is False:
        raise UserError(f"metric {wanted!r} of task {task.config.task!r}: lower is better")
    return wanted, chosen
