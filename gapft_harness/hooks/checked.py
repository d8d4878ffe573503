"""Check the results of plugin objects: samplers, verifiers, executors, report sections."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, get_args

from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.records import FINISH_REASONS, Decoding, Gold, TokensFrom
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.hooks.protocols import (
    Executor,
    Generated,
    Generation,
    Job,
    Progress,
    ReportGeneration,
    Request,
    Sampler,
    Verifier,
)
from gapft_harness.hooks.registration import Registration, find_owner

if TYPE_CHECKING:  # loads numpy
    from gapft_harness.presentation.content import Table

_TOKENS_FROM = get_args(TokensFrom)

#: The verifier's optional method that judges and reads answers in one pass.
COMBINED_METHOD = "verify_with_answers"

#: Token ids are stored in 32 bits.
_TOKEN_ID_RANGE = range(2**31)


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
    """Check facts returned by a plugin, which go into the manifest and results.json.

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


def find_ids_fault(ids: Any) -> str:
    """Describe the fault in a list of token ids; return ``""`` if it is valid."""
    if not isinstance(ids, tuple | list) or not set(map(type, ids)) <= {int}:
        return f"token ids that are not a tuple of integers ({short(ids)})"
    if ids and not (min(ids) in _TOKEN_ID_RANGE and max(ids) in _TOKEN_ID_RANGE):
        return f"a token id out of range ({min(ids) if min(ids) < 0 else max(ids)})"
    return ""


class CheckedSampler:
    """A sampler whose every answer is checked against the contract before it is stored."""

    def __init__(self, entry: Registration, sampler: Sampler) -> None:
        require_methods(entry, sampler, "generate", "describe", "close")
        self._entry, self._sampler = entry, sampler

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answer every request, in order.

        Raises:
            PluginError: the sampler raised, or an answer is not valid.
        """
        with self._entry.wrap_errors():
            answers = self._sampler.generate(list(requests), decoding, report)
        if not isinstance(answers, list | tuple) or len(answers) != len(requests):
            count = f"{len(answers)} answers" if isinstance(answers, list | tuple) else "not a list"
            raise self._contract_error(f"returned {count} for {len(requests)} requests")
        for request, answer in zip(requests, answers, strict=True):
            if fault := _find_answer_fault(request, answer):
                raise self._contract_error(f"answered problem {request.problem_id} with {fault}")
        return list(answers)

    def describe(self) -> dict[str, Any]:
        """Return the model's identity and versions.

        Raises:
            PluginError: the sampler raised, or they are not JSON values.
        """
        with self._entry.wrap_errors():
            description = self._sampler.describe()
        return check_facts(self._entry, description, "a description", self._sampler.describe)

    def close(self) -> None:
        """Free the model."""
        with self._entry.wrap_errors():
            self._sampler.close()

    def _contract_error(self, fault: str) -> Exception:
        return self._entry.contract_error(fault, self._sampler.generate)


def _find_answer_fault(request: Request, answer: Any) -> str:
    if not isinstance(answer, Generated):
        return f"{short(answer)}; expected gapft_harness.api.Generated"
    if fault := find_ids_fault(answer.prompt_ids):
        return f"prompt_ids: {fault}"
    generations, expected_count = answer.generations, len(request.indices)
    if not isinstance(generations, tuple | list) or len(generations) != expected_count:
        count = (
            f"{len(generations)} responses"
            if isinstance(generations, tuple | list)
            else "not a tuple"
        )
        return f"{count}; expected {expected_count} responses"
    return next(filter(None, map(_find_generation_fault, generations)), "")


def _find_generation_fault(generation: Any) -> str:
    if not isinstance(generation, Generation):
        return f"{short(generation)}; expected gapft_harness.api.Generation"
    texts: tuple[Any, ...] = (generation.text, generation.reasoning)
    for name, text in zip(("text", "reasoning"), texts, strict=True):
        if not isinstance(text, str):
            return f"a {name} that is not a string ({short(text)})"
        if fault := find_json_fault(text):
            return f"a {name} that {fault} (gapft_harness.api.replace_surrogates repairs it)"
    for value, choices in (
        (generation.finish_reason, FINISH_REASONS),
        (generation.tokens_from, _TOKENS_FROM),
    ):
        if not isinstance(value, str) or value not in choices:
            name = "finish_reason" if choices is FINISH_REASONS else "tokens_from"
            return f"the {name} {short(value)}; expected one of {', '.join(choices)}"
    passed: Any = generation.passed
    if not (passed is None or isinstance(passed, bool)):
        return f"passed as {short(passed)}; expected True, False or None"
    return find_ids_fault(generation.token_ids)


class AnswerReader:
    """Reads the answer in a response with the verifier's own ``answer`` method."""

    def __init__(self, verifier: Verifier, answer: Callable[..., Any]) -> None:
        self._owner, self._answer = find_owner("verifier", verifier), answer
        #: Whether the verifier can read answers in the pass that judges.
        self.has_combined_method = hasattr(verifier, COMBINED_METHOD)
        #: Whether ``answer`` takes the gold, to read the parts of it that the problem shows.
        self.sees_gold = "gold" in inspect.signature(answer).parameters

    def read(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """Read the answer of each text; None where a text has no answer.

        Raises:
            PluginError: the verifier raised, or returned another type.
        """
        with self._owner.wrap_errors():
            if self.sees_gold:
                answers = [self._answer(t, gold=gold) for t, gold in zip(texts, golds, strict=True)]
            else:
                answers = [self._answer(text) for text in texts]
        return [check_answer(self._owner, answer, "answer", self._answer) for answer in answers]


def check_answer(owner: Registration, answer: Any, method: str, function: object) -> str | None:
    """Check an answer returned by a verifier's method, and make it storable in a table.

    Raises:
        PluginError: it is not text.
    """
    if not (answer is None or isinstance(answer, str)):
        raise owner.contract_error(
            f"returned {short(answer)} from {method}; expected text, or None where a response "
            "has no answer",
            function,
        )
    return answer if answer is None or answer.isascii() else replace_text_surrogates(answer)


def find_answer_reader(verifier: Verifier) -> AnswerReader | None:
    """Return the reader of a verifier's answers; None if the verifier has no ``answer``."""
    answer = getattr(verifier, "answer", None)
    return AnswerReader(verifier, answer) if callable(answer) else None


class CheckedExecutor:
    """An executor whose results are checked against the contract."""

    def __init__(self, entry: Registration, executor: Executor) -> None:
        require_methods(entry, executor, "run", "close")
        self._entry, self._executor = entry, executor

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Run all jobs.

        Raises:
            PluginError: the executor did not return one result for each job.
        """
        with self._entry.wrap_errors():
            results = self._executor.run(jobs, progress)
        if not isinstance(results, list | tuple) or len(results) != len(jobs):
            count = f"{len(results)} results" if isinstance(results, list | tuple) else "not a list"
            raise self._entry.contract_error(
                f"returned {count} for {len(jobs)} jobs", self._executor.run
            )
        for job, result in zip(jobs, results, strict=True):
            if not isinstance(result, dict):
                raise self._entry.contract_error(
                    f"returned {short(result)} as the result of {job.label}; expected the dict "
                    "that its function returned",
                    self._executor.run,
                )
        return list(results)

    def close(self) -> None:
        """Stop the workers."""
        with self._entry.wrap_errors():
            self._executor.close()


def build_checked_section(entry: Registration) -> Callable[[Mapping[str, Any]], list[Table]]:
    """Wrap a report section so that its result is checked to be tables."""
    from gapft_harness.presentation.content import Table

    def build(results: Mapping[str, Any]) -> list[Table]:
        with entry.wrap_errors():
            tables = list(entry.value(results))
        for table in tables:
            if not isinstance(table, Table):
                raise entry.contract_error(f"returned {short(table)}; expected tables")
        return tables

    return build
