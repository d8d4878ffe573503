"""Check the results of plugin objects: samplers and executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any

from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.records import FINISH_REASONS, Decoding
from gapft_harness.hooks.protocols import (
    Executor,
    Generated,
    Generation,
    Job,
    Progress,
    ReportGeneration,
    Request,
    Sampler,
)
from gapft_harness.hooks.registration import Registration


def require_methods(entry: Registration, plugin_object: object, *names: str) -> None:
    """Check that an object made by a plugin factory has the methods that will be called.

    Raises:
        PluginError: a method is missing.
    """
    if missing := [name for name in names if not callable(getattr(plugin_object, name, None))]:
        raise entry.contract_error(
            f"created {short(plugin_object)}, which has no method {missing[0]}"
        )


def check_facts(
    entry: Registration, value: Any, description: str, function: object = None
) -> dict[str, Any]:
    """Check facts returned by a plugin, which go into run.json and results.json.

    Raises:
        PluginError: they are not a dictionary of finite JSON values.
    """
    if not isinstance(value, Mapping):
        raise entry.contract_error(
            f"returned {short(value)} as {description}; expected a dictionary", function
        )
    facts = dict(value)
    if fault := find_json_fault(facts, finite=True):
        raise entry.contract_error(
            f"returned {description} that JSON cannot represent: it {fault}", function
        )
    return facts


class CheckedSampler:
    """A sampler whose every answer is checked against the contract before it is stored."""

    def __init__(self, entry: Registration, sampler: Sampler) -> None:
        require_methods(entry, sampler, "generate", "describe", "close")
        self._entry = entry
        self._sampler = sampler

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answer every request, in order.

        Raises:
            PluginError: an answer is not valid.
        """
        generate = self._sampler.generate
        answers: Sequence[Generated] = self._entry.call(
            generate,
            list(requests),
            decoding,
            report,
            returns=Sequence[Generated],
            count=len(requests),
        )
        for request, answer in zip(requests, answers, strict=True):
            if fault := _find_answer_fault(request, answer):
                raise self._entry.contract_error(
                    f"answered problem {request.problem_id} with {fault}", generate
                )
        return list(answers)

    def describe(self) -> dict[str, Any]:
        """Return the model's identity and versions.

        Raises:
            PluginError: they are not JSON values.
        """
        with self._entry.wrap_errors():
            description = self._sampler.describe()
        return check_facts(self._entry, description, "a description", self._sampler.describe)

    def close(self) -> None:
        """Free the model."""
        with self._entry.wrap_errors():
            self._sampler.close()


def _find_answer_fault(request: Request, answer: Generated) -> str:
    if len(answer.generations) != len(request.indices):
        return f"{len(answer.generations)} responses; expected {len(request.indices)}"
    return next(filter(None, map(_find_generation_fault, answer.generations)), "")


def _find_generation_fault(generation: Generation) -> str:
    for text in (generation.text, generation.reasoning):
        if fault := find_json_fault(text):
            return f"a text that {fault} (text.encode(errors='replace').decode() repairs it)"
    if generation.finish_reason not in FINISH_REASONS:
        return (
            f"the finish_reason {generation.finish_reason!r}; expected one of "
            f"{', '.join(FINISH_REASONS)}"
        )
    return ""


class CheckedExecutor:
    """An executor whose results are checked against the contract."""

    def __init__(self, entry: Registration, executor: Executor) -> None:
        require_methods(entry, executor, "run", "close")
        self._entry = entry
        self._executor = executor

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Run all jobs.

        Raises:
            PluginError: the executor did not return one result for each job.
        """
        results: Sequence[dict[str, Any]] = self._entry.call(
            self._executor.run, jobs, progress, returns=Sequence[dict[str, Any]], count=len(jobs)
        )
        return list(results)

    def close(self) -> None:
        """Stop the workers."""
        with self._entry.wrap_errors():
            self._executor.close()
