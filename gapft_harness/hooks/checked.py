"""What plugins' objects give is checked where it enters: samplers, executors, report sections."""

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

#: A verifier's optional method that judges and answers in one pass.
AT_ONCE = "verify_with_answers"

#: Token ids are kept in 32 bits.
_IDS = range(2**31)


def require_methods(entry: Registered, made: object, *names: str) -> None:
    """Holds what a factory made to the methods that will be called.

    Raises:
        PluginError: it has not all of them.
    """
    if missing := [name for name in names if not callable(getattr(made, name, None))]:
        raise entry.broke(f"made {short(made)}, which has no method {missing[0]}")


def plain_facts(entry: Registered, given: Any, what: str, by: object = None) -> dict[str, Any]:
    """Facts that a plugin says, which go into the manifest and results.json.

    Raises:
        PluginError: they are no dictionary of finite JSON values.
    """
    if not isinstance(given, Mapping):
        raise entry.broke(f"gave {short(given)} as {what}; expected a dictionary", by)
    facts = dict(given)
    if fault := json_fault(facts, finite=True):
        raise entry.broke(f"gave {what} that JSON cannot hold: it {fault}", by)
    return facts


def ids_fault(ids: Any) -> str:
    """What is wrong with token ids, or ``""``."""
    if not isinstance(ids, tuple | list) or not set(map(type, ids)) <= {int}:
        return f"token ids that are no tuple of integers ({short(ids)})"
    if ids and not (min(ids) in _IDS and max(ids) in _IDS):
        return f"a token id that is none ({min(ids) if min(ids) < 0 else max(ids)})"
    return ""


class CheckedSampler:
    """A sampler whose every answer is held to the contract before it is stored."""

    def __init__(self, entry: Registered, sampler: Sampler) -> None:
        require_methods(entry, sampler, "generate", "describe", "close")
        self._entry, self._sampler = entry, sampler

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answers every request, in order.

        Raises:
            PluginError: the sampler raised, or an answer is none.
        """
        with self._entry.blamed():
            answers = self._sampler.generate(list(requests), decoding, report)
        if not isinstance(answers, list | tuple) or len(answers) != len(requests):
            count = f"{len(answers)} answers" if isinstance(answers, list | tuple) else "no list"
            raise self._broke(f"gave {count} for {len(requests)} requests")
        for request, answer in zip(requests, answers, strict=True):
            if fault := _answer_fault(request, answer):
                raise self._broke(f"answered problem {request.problem_id} with {fault}")
        return list(answers)

    def describe(self) -> dict[str, Any]:
        """Model identity and versions.

        Raises:
            PluginError: the sampler raised, or they are no JSON values.
        """
        with self._entry.blamed():
            found = self._sampler.describe()
        return plain_facts(self._entry, found, "a description", self._sampler.describe)

    def close(self) -> None:
        """Frees the model."""
        with self._entry.blamed():
            self._sampler.close()

    def _broke(self, fault: str) -> Exception:
        return self._entry.broke(fault, self._sampler.generate)


def _answer_fault(request: Request, answer: Any) -> str:
    if not isinstance(answer, Generated):
        return f"{short(answer)}; expected gapft_harness.api.Generated"
    if fault := ids_fault(answer.prompt_ids):
        return f"a prompt of {fault}"
    given, wanted = answer.generations, len(request.indices)
    if not isinstance(given, tuple | list) or len(given) != wanted:
        count = len(given) if isinstance(given, tuple | list) else "no tuple of"
        return f"{count} responses; expected {wanted}"
    return next(filter(None, map(_generation_fault, given)), "")


def _generation_fault(given: Any) -> str:
    if not isinstance(given, Generation):
        return f"{short(given)}; expected gapft_harness.api.Generation"
    text: Any = given.text
    if not isinstance(text, str):
        return f"a text that is none ({short(text)})"
    if fault := json_fault(text):
        return f"a text that {fault} (gapft_harness.api.whole mends it)"
    for word, known in ((given.finish_reason, FINISH_REASONS), (given.tokens_from, _TOKENS_FROM)):
        if not isinstance(word, str) or word not in known:
            name = "finish_reason" if known is FINISH_REASONS else "tokens_from"
            return f"the {name} {short(word)}; expected one of {', '.join(known)}"
    return ids_fault(given.token_ids)


class CheckedAnswers:
    """Reads the answer that a response gives, by a verifier's own ``answer``."""

    def __init__(self, verifier: Verifier, answer: Callable[..., Any]) -> None:
        self._owner, self._answer = owner_of("verifier", verifier), answer
        #: Whether the verifier reads answers while it judges, too.
        self.at_once = hasattr(verifier, AT_ONCE)
        #: Whether it asks to see the gold, of which it may read what the problem shows.
        self.sees_gold = "gold" in inspect.signature(answer).parameters

    def read(self, texts: Sequence[str], golds: Sequence[Gold]) -> list[str | None]:
        """The answer that each text gives; None where it gives none.

        Raises:
            PluginError: the verifier raised, or gave something else.
        """
        with self._owner.blamed():
            if self.sees_gold:
                found = [self._answer(t, gold=gold) for t, gold in zip(texts, golds, strict=True)]
            else:
                found = [self._answer(text) for text in texts]
        return [checked_answer(self._owner, answer, "answer", self._answer) for answer in found]


def checked_answer(owner: Registered, answer: Any, method: str, by: object) -> str | None:
    """An answer that a verifier's method gave, as a table can hold it.

    Raises:
        PluginError: it is no text.
    """
    if not (answer is None or isinstance(answer, str)):
        raise owner.broke(
            f"gave {short(answer)} in {method}; expected text, or None where a response gives "
            "no answer",
            by,
        )
    return answer if answer is None or answer.isascii() else whole_text(answer)


def answers_of(verifier: Verifier) -> CheckedAnswers | None:
    """What reads a verifier's answers; None if it gives none."""
    answer = getattr(verifier, "answer", None)
    return CheckedAnswers(verifier, answer) if callable(answer) else None


class CheckedExecutor:
    """An executor whose results are held to the contract."""

    def __init__(self, entry: Registered, executor: Executor) -> None:
        require_methods(entry, executor, "run", "close")
        self._entry, self._executor = entry, executor

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Runs all jobs.

        Raises:
            PluginError: the executor gave other results than one for each job.
        """
        with self._entry.blamed():
            results = self._executor.run(jobs, progress)
        if not isinstance(results, list | tuple) or len(results) != len(jobs):
            count = f"{len(results)} results" if isinstance(results, list | tuple) else "no list"
            raise self._entry.broke(f"gave {count} for {len(jobs)} jobs", self._executor.run)
        for job, result in zip(jobs, results, strict=True):
            if not isinstance(result, dict):
                raise self._entry.broke(
                    f"gave {short(result)} as the result of {job.label}; expected the dictionary "
                    "that its function returned",
                    self._executor.run,
                )
        return list(results)

    def close(self) -> None:
        """Stops the workers."""
        with self._entry.blamed():
            self._executor.close()


def checked_section(entry: Registered) -> Callable[[Mapping[str, Any]], str]:
    """A report section whose Markdown is text that a file can hold."""

    def render(results: Mapping[str, Any]) -> str:
        with entry.blamed():
            text = entry.value(results)
        if not isinstance(text, str) or json_fault(text):
            raise entry.broke(f"gave {short(text)}, expected Markdown text")
        return text

    return render
