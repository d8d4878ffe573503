"""Check the results of plugin objects: samplers, verifiers, executors, report sections."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from reprlib import repr as short
from typing import Any, get_args

from gapft_harness.core.json_values import json_fault
from gapft_harness.core.records import FINISH_REASONS, Decoding, Gold, TokensFrom
from gapft_harness.core.text import whole_text
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
from gapft_harness.hooks.registered import Registered, owner_of

_TOKENS_FROM = get_args(TokensFrom)

#: The verifier's optional method that judges and reads answers in one pass.
AT_ONCE = "verify_with_answers"

#: Token ids are stored in 32 bits.
_IDS = range(2**31)


def require_methods(entry: Registered, made: object, *names: str) -> None:
    """Check that an object made by a plugin factory has the methods that will be called.

    Raises:
        PluginError: a method is missing.
    """
    if missing := [name for name in names if not callable(getattr(made, name, None))]:
        raise entry.broke(f"created {short(made)}, which has no method {missing[0]}")


def plain_facts(entry: Registered, given: Any, what: str, by: object = None) -> dict[str, Any]:
    """Check facts returned by a plugin, which go into the manifest and results.json.

    Raises:
        PluginError: they are not a dictionary of finite JSON values.
    """
    if not isinstance(given, Mapping):
        raise entry.broke(f"returned {short(given)} as {what}; expected a dictionary", by)
    facts = dict(given)
    if fault := json_fault(facts, finite=True):
        raise entry.broke(f"returned {what} that JSON cannot represent: it {fault}", by)
    return facts


def ids_fault(ids: Any) -> str:
    """Describe the fault in a list of token ids; return ``""`` if it is valid."""
    if not isinstance(ids, tuple | list) or not set(map(type, ids)) <= {int}:
        return f"token ids that are not a tuple of integers ({short(ids)})"
    if ids and not (min(ids) in _IDS and max(ids) in _IDS):
        return f"a token id out of range ({min(ids) if min(ids) < 0 else max(ids)})"
    return ""


class CheckedSampler:
    """A sampler whose every answer is checked against the contract before it is stored."""

    def __init__(self, entry: Registered, sampler: Sampler) -> None:
        require_methods(entry, sampler, "generate", "describe", "close")
        self._entry, self._sampler = entry, sampler

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answer every request, in order.

        Raises:
            PluginError: the sampler raised, or an answer is not valid.
        """
        with self._entry.blamed():
            answers = self._sampler.generate(list(requests), decoding, report)
        if not isinstance(answers, list | tuple) or len(answers) != len(requests):
            count = f"{len(answers)} answers" if isinstance(answers, list | tuple) else "not a list"
            raise self._broke(f"returned {count} for {len(requests)} requests")
        for request, answer in zip(requests, answers, strict=True):
            if fault := _answer_fault(request, answer):
                raise self._broke(f"answered problem {request.problem_id} with {fault}")
        return list(answers)

    def describe(self) -> dict[str, Any]:
        """Return the model's identity and versions.

        Raises:
            PluginError: the sampler raised, or they are not JSON values.
        """
        with self._entry.blamed():
            found = self._sampler.describe()
        return plain_facts(self._entry, found, "a description", self._sampler.describe)

    def close(self) -> None:
        """Free the model."""
        with self._entry.blamed():
            self._sampler.close()

    def _broke(self, fault: str) -> Exception:
        return self._entry.broke(fault, self._sampler.generate)


def _answer_fault(request: Request, answer: Any) -> str:
    if not isinstance(answer, Generated):
        return f"{short(answer)}; expected gapft_harness.api.Generated"
    if fault := ids_fault(answer.prompt_ids):
        return f"prompt_ids: {fault}"
    given, wanted = answer.generations, len(request.indices)
    if not isinstance(given, tuple | list) or len(given) != wanted:
        count = f"{len(given)} responses" if isinstance(given, tuple | list) else "not a tuple"
        return f"{count}; expected {wanted} responses"
    return next(filter(None, map(_generation_fault, given)), "")


def _generation_fault(given: Any) -> str:
    if not isinstance(given, Generation):
        return f"{short(given)}; expected gapft_harness.api.Generation"
    text: Any = given.text
    if not isinstance(text, str):
        return f"a text that is not a string ({short(text)})"
    if fault := json_fault(text):
        return f"a text that {fault} (gapft_harness.api.whole repairs it)"
    for word, known in ((given.finish_reason, FINISH_REASONS), (given.tokens_from, _TOKENS_FROM)):
        if not isinstance(word, str) or word not in known:
            name = "finish_reason" if known is FINISH_REASONS else "tokens_from"
            return f"the {name} {short(word)}; expected one of {', '.join(known)}"
    return ids_fault(given.token_ids)


class CheckedAnswers:
    """Reads the answer in a response with the verifier's own ``answer`` method."""

    def __init__(self, verifier: Verifier, answer: Callable[..., Any]) -> None:
        self._owner, self._answer = owner_of("verifier", verifier), answer
        #: Whether the verifier can read answers in the pass that judges.
        self.at_once = hasattr(verifier, AT_ONCE)
        #: Whether ``answer`` takes the gold, to read the parts of it that the problem shows.
        self.sees_gold = "gold" in inspect.signature(answer).parameters

    def read(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """Read the answer of each text; None where a text has no answer.

        Raises:
            PluginError: the verifier raised, or returned another type.
        """
        with self._owner.blamed():
            if self.sees_gold:
                found = [self._answer(t, gold=gold) for t, gold in zip(texts, golds, strict=True)]
            else:
                found = [self._answer(text) for text in texts]
        return [checked_answer(self._owner, answer, "answer", self._answer) for answer in found]


def checked_answer(owner: Registered, answer: Any, method: str, by: object) -> str | None:
    """Check an answer returned by a verifier's method, and make it storable in a table.

    Raises:
        PluginError: it is not text.
    """
    if not (answer is None or isinstance(answer, str)):
        raise owner.broke(
            f"returned {short(answer)} from {method}; expected text, or None where a response "
            "has no answer",
            by,
        )
    return answer if answer is None or answer.isascii() else whole_text(answer)


def answers_of(verifier: Verifier) -> CheckedAnswers | None:
    """Return the reader of a verifier's answers; None if the verifier has no ``answer``."""
    answer = getattr(verifier, "answer", None)
    return CheckedAnswers(verifier, answer) if callable(answer) else None


class CheckedExecutor:
    """An executor whose results are checked against the contract."""

    def __init__(self, entry: Registered, executor: Executor) -> None:
        require_methods(entry, executor, "run", "close")
        self._entry, self._executor = entry, executor

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Run all jobs.

        Raises:
            PluginError: the executor did not return one result for each job.
        """
        with self._entry.blamed():
            results = self._executor.run(jobs, progress)
        if not isinstance(results, list | tuple) or len(results) != len(jobs):
            count = f"{len(results)} results" if isinstance(results, list | tuple) else "not a list"
            raise self._entry.broke(f"returned {count} for {len(jobs)} jobs", self._executor.run)
        for job, result in zip(jobs, results, strict=True):
            if not isinstance(result, dict):
                raise self._entry.broke(
                    f"returned {short(result)} as the result of {job.label}; expected the dict "
                    "that its function returned",
                    self._executor.run,
                )
        return list(results)

    def close(self) -> None:
        """Stop the workers."""
        with self._entry.blamed():
            self._executor.close()


def checked_section(entry: Registered) -> Callable[[Mapping[str, Any]], str]:
    """Wrap a report section so that its Markdown is checked to be text a file can hold."""

    def render(results: Mapping[str, Any]) -> str:
        with entry.blamed():
            text = entry.value(results)
        if not isinstance(text, str) or json_fault(text):
            raise entry.broke(f"returned {short(text)}; expected Markdown text")
        return text

    return render
