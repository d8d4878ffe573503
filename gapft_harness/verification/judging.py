"""Verify many responses; each distinct (response, gold) pair is judged once."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.json_values import find_json_fault
from gapft_harness.core.records import CONTEXT_EXCEEDED, Gold, Response, Verdict
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.hooks.checked import COMBINED_METHOD, AnswerReader, clean_answer, require_methods
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registration import Registration, find_owner

T = TypeVar("T")

#: A verdict, and the answer if the verifier read it in the same pass, else None.
VerdictAndAnswer = tuple[Verdict, str | None]

#: The verdict on a response that was not generated (V = 0); the verifier is not called.
_NOT_GENERATED = Verdict("fail", "prompt does not fit the context")


def verify_responses(
    verifier: Verifier, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[Verdict]:
    """Judge responses like ``verify_unique``; responses that were not generated fail."""
    return [verdict for verdict, _ in _judge_responses(verifier, responses, golds)]


def judge_and_answer(
    verifier: Verifier,
    answers: AnswerReader | None,
    responses: Sequence[Response],
    golds: Sequence[Gold],
    verdicts: Sequence[Verdict | None] = (),
) -> list[VerdictAndAnswer]:
    """Judge responses and read their answers, in one pass if the verifier supports it.

    Args:
        verifier: the verifier.
        answers: the verifier's reader of answers; None if it has none.
        responses: the responses; those that were not generated fail.
        golds: the gold answer of each response.
        verdicts: the existing verdict of each response, or None to judge it; default: judge all.

    Returns:
        The verdict and the answer of each response.
    """
    pairs = list(zip(responses, golds, verdicts or [None] * len(responses), strict=True))
    new = [(response, gold) for response, gold, verdict in pairs if verdict is None]
    judged = iter(_judge_responses(verifier, *_split_pairs(new)))
    at_once = answers is not None and answers.has_combined_method
    unread = [(r, gold) for r, gold, verdict in pairs if verdict is not None or not at_once]
    read_answers = iter(answer_responses(answers, *_split_pairs(unread)))
    results = []
    for _, _, verdict in pairs:
        current, answer = (verdict, None) if verdict else next(judged)
        results.append((current, answer if at_once and verdict is None else next(read_answers)))
    return results


def _split_pairs(pairs: Sequence[tuple[Response, Gold]]) -> tuple[list[Response], list[Gold]]:
    return [response for response, _ in pairs], [gold for _, gold in pairs]


def _judge_responses(
    verifier: Verifier, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[VerdictAndAnswer]:
    pairs = list(zip(responses, golds, strict=True))
    written = [(r.text, gold) for r, gold in pairs if r.finish_reason != CONTEXT_EXCEEDED]
    judged = iter(judge_unique(verifier, [t for t, _ in written], [gold for _, gold in written]))
    skipped = (_NOT_GENERATED, None)
    return [skipped if r.finish_reason == CONTEXT_EXCEEDED else next(judged) for r in responses]


def answer_responses(
    answers: AnswerReader | None, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[str | None]:
    """Read the answer of each response; equal texts are read once (per gold if the reader uses it).

    Args:
        answers: the verifier's reader of answers (``hooks.checked.find_answer_reader``); with None,
            no response has an answer.
        responses: the responses; those that were not generated have no answer.
        golds: the gold answer of each response.

    Raises:
        PluginError: the verifier returned neither text nor None.
    """
    if answers is None:
        return [None] * len(responses)
    sees_gold = answers.sees_gold
    keys = [
        None if r.finish_reason == CONTEXT_EXCEEDED else (r.text, id(gold) if sees_gold else 0)
        for r, gold in zip(responses, golds, strict=True)
    ]
    distinct = {key: gold for key, gold in zip(keys, golds, strict=True) if key is not None}
    read_answers = answers.read([text for text, _ in distinct], list(distinct.values()))
    answer_by_key = dict(zip(distinct, read_answers, strict=True))
    return [None if key is None else answer_by_key[key] for key in keys]


def verify_unique(
    verifier: Verifier, responses: Sequence[str], golds: Sequence[Gold]
) -> list[Verdict]:
    """Judge like ``judge_unique``, and return only the verdicts."""
    return [verdict for verdict, _ in judge_unique(verifier, responses, golds)]


def judge_unique(
    verifier: Verifier, responses: Sequence[str], golds: Sequence[Gold]
) -> list[VerdictAndAnswer]:
    """Judge ``responses[i]`` against ``golds[i]``; identical pairs are judged once.

    A verifier must not raise. If it does, its pairs are judged one by one. Each pair on which it
    raises gets an ``error`` verdict with the exception as the reason, so one unusual response does
    not end a run. If it raises on every pair, the first exception is raised again.

    Returns:
        For each response, in order, its verdict, and its answer if the verifier has the method
        ``verify_with_answers``, else None.

    Raises:
        PluginError: the verifier returned a wrong number of verdicts, or a value that is not a
            ``Verdict``.
        ValueError: the numbers of responses and golds differ.
    """
    owner = find_owner("verifier", verifier)
    method = getattr(verifier, COMBINED_METHOD, None)
    if method is not None:
        require_methods(owner, verifier, COMBINED_METHOD, "answer")

    def call_verifier(texts: Sequence[str], expected: Sequence[Gold]) -> list[VerdictAndAnswer]:
        judge: Callable[..., Any] = method or verifier.verify
        with owner.wrap_errors():
            returned = judge(list(texts), list(expected))
        return _check_results(owner, returned, len(texts), judge, has_answers=method is not None)

    def judge_pairs(texts: Sequence[str], expected: Sequence[Gold]) -> list[VerdictAndAnswer]:
        try:
            return call_verifier(texts, expected)
        except GapftError:
            raise
        except Exception as error:
            first_error = error
        judged, failures = [], 0
        for text, gold in zip(texts, expected, strict=True):
            try:
                judged += call_verifier([text], [gold])
            except GapftError:
                raise
            except Exception as error:
                failures += 1
                verdict = Verdict("error", f"the verifier raised {describe_error(error)}")
                judged.append((verdict, None))
        if failures == len(texts):
            first_error.add_note(f"Raised on all {failures} pairs of a response and a gold")
            raise first_error
        return judged

    return judge_once_each(judge_pairs, responses, golds)


@contextlib.contextmanager
def closing_verifier(verifier: Verifier) -> Iterator[Verifier]:
    """Close a verifier at the end, if it has a ``close`` method (worker processes)."""
    try:
        yield verifier
    finally:
        close = getattr(verifier, "close", None)
        if close is not None:
            with find_owner("verifier", verifier).wrap_errors():
                close()


def check_golds(verifier: Verifier, golds: Iterable[tuple[Gold, str]]) -> None:
    """Check gold answers before responses are generated.

    Args:
        verifier: any verifier. It may have a method ``check_gold(gold) -> str``, which returns ""
            for a valid gold, else a description of the fault; without it, only the JSON is checked.
        golds: each gold answer with the place of its record, such as ``train.jsonl, line 7``.

    Raises:
        UserError: a gold answer is invalid; the message begins with the place.
        PluginError: ``check_gold`` returned a value that is not text.
    """
    check = getattr(verifier, "check_gold", None)
    owner = find_owner("verifier", verifier)
    for gold, place in golds:
        # A mapping may be a complete document, whose unused fields may be NaN (missing).
        if fault := find_json_fault(gold, finite=not isinstance(gold, Mapping)):
            raise UserError(f"{place}: the gold answer {fault}; expected a JSON value")
        if check is None:
            continue
        with owner.wrap_errors(place):
            fault = check(gold)
        owner.check_result(fault, str, check)
        if fault:
            raise UserError(f"{place}: {fault}")


def judge_once_each(
    judge: Callable[[Sequence[str], Sequence[Gold]], list[T]],
    responses: Sequence[str],
    golds: Sequence[Gold],
) -> list[T]:
    """Call ``judge`` once with the distinct (response, gold) pairs; return results for all pairs.

    Two golds are equal if their JSON is equal; the order of keys does not matter.

    Args:
        judge: a function that takes responses and their golds and returns a result for each pair,
            in order.
        responses: the texts, shape (R,).
        golds: the gold answer of each response, shape (R,).

    Returns:
        A result for each response, shape (R,).

    Raises:
        ValueError: the numbers of responses and golds differ.
    """
    if len(responses) != len(golds):
        raise ValueError(f"{len(responses)} responses, but {len(golds)} gold answers")
    # A gold may be megabytes of packed tests, and all responses to a problem share one object, so
    # each object is serialized once, and only its digest is kept.
    objects = {id(gold): gold for gold in golds}
    digests = {key: _hash_gold(gold) for key, gold in objects.items()}
    keys = [(text, digests[id(gold)]) for text, gold in zip(responses, golds, strict=True)]
    first_index = {key: i for i, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first_index.values())
    if not distinct:
        return []
    verdicts = judge([responses[i] for i in distinct], [golds[i] for i in distinct])
    by_key = {keys[i]: verdict for i, verdict in zip(distinct, verdicts, strict=True)}
    return [by_key[key] for key in keys]


def _hash_gold(gold: Gold) -> bytes:
    text = json.dumps(gold, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).digest()


def _check_results(
    owner: Registration, returned: Any, count: int, judge: object, *, has_answers: bool
) -> list[VerdictAndAnswer]:
    """Check the type and the number of a verifier's results, and make their texts storable."""
    result_type = tuple[Verdict, str | None] if has_answers else Verdict
    owner.check_result(returned, Sequence[result_type], judge)  # type: ignore[valid-type]
    if len(returned) != count:
        raise owner.contract_error(f"returned {len(returned)} verdicts for {count} pairs", judge)
    pairs = returned if has_answers else [(verdict, None) for verdict in returned]
    # A reason may quote a response with lone surrogates, which tables cannot store.
    return [
        (replace(verdict, reason=replace_text_surrogates(verdict.reason)), clean_answer(answer))
        for verdict, answer in pairs
    ]
