"""Verify many responses; each distinct (response, gold) pair is judged once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from reprlib import repr as short
from typing import TypeVar

from gapft_harness.core.errors import FAULTS, GapftError, PluginError, UserError, describe
from gapft_harness.core.json_values import json_fault
from gapft_harness.core.records import CONTEXT, STATUSES, Gold, Response, Verdict
from gapft_harness.core.text import whole_text
from gapft_harness.hooks.checked import AT_ONCE, CheckedAnswers, checked_answer, require_methods
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.hooks.registered import Registered, own_line, owner_of

T = TypeVar("T")

#: A verdict, and the answer if the verifier read it at the same time.
VerdictAndAnswer = tuple[Verdict, str | None]

#: The verdict on a response that was not generated: V = 0, without a call of the verifier.
_BEYOND_CONTEXT = Verdict("fail", "prompt does not fit the context")


def verify_responses(
    verifier: Verifier, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[Verdict]:
    """Judge responses like ``verify_unique``; responses that were not generated fail."""
    return [verdict for verdict, _ in _judge_responses(verifier, responses, golds)]


def judge_and_answer(
    verifier: Verifier,
    answers: CheckedAnswers | None,
    responses: Sequence[Response],
    golds: Sequence[Gold],
    known: Sequence[Verdict | None] = (),
) -> list[VerdictAndAnswer]:
    """Judge responses and read their answers, in one pass if the verifier supports it.

    Args:
        verifier: the verifier.
        answers: its reader of answers; None if it has none.
        responses: the responses; those that were not generated fail.
        golds: the gold answer of each response.
        verdicts: for each response its existing verdict, or None; default: all None.

    Returns:
        The verdict and the answer of each response.
    """
    pairs = list(zip(responses, golds, known or [None] * len(responses), strict=True))
    new = [(response, gold) for response, gold, verdict in pairs if verdict is None]
    judged = iter(_judge_responses(verifier, *_columns(new)))
    at_once = answers is not None and answers.at_once
    rest = [(r, gold) for r, gold, verdict in pairs if verdict is not None or not at_once]
    read = iter(answer_responses(answers, *_columns(rest)))
    found = []
    for _, _, verdict in pairs:
        now, answer = (verdict, None) if verdict else next(judged)
        found.append((now, answer if at_once and verdict is None else next(read)))
    return found


def _columns(pairs: Sequence[tuple[Response, Gold]]) -> tuple[list[Response], list[Gold]]:
    return [response for response, _ in pairs], [gold for _, gold in pairs]


def _judge_responses(
    verifier: Verifier, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[VerdictAndAnswer]:
    pairs = list(zip(responses, golds, strict=True))
    written = [(r.text, gold) for r, gold in pairs if r.finish_reason != CONTEXT]
    judged = iter(judge_unique(verifier, [t for t, _ in written], [gold for _, gold in written]))
    skipped = (_BEYOND_CONTEXT, None)
    return [skipped if r.finish_reason == CONTEXT else next(judged) for r in responses]


def answer_responses(
    answers: CheckedAnswers | None, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[str | None]:
    """Read the answer of each response; equal texts are read once (per gold if the reader uses it).

    Args:
        answers: the verifier's reader of answers (``hooks.checked.answers_of``); with None, no
            response has an answer.
        responses: the responses; those that were not generated have no answer.
        golds: the gold answer of each response.

    Raises:
        PluginError: the verifier raised, or returned a value that is not an answer.
    """
    if answers is None:
        return [None] * len(responses)
    seen = answers.sees_gold
    keys = [
        None if r.finish_reason == CONTEXT else (r.text, id(gold) if seen else 0)
        for r, gold in zip(responses, golds, strict=True)
    ]
    distinct = {key: gold for key, gold in zip(keys, golds, strict=True) if key is not None}
    read = answers.read([text for text, _ in distinct], list(distinct.values()))
    found = dict(zip(distinct, read, strict=True))
    return [None if key is None else found[key] for key in keys]


def verify_unique(
    verifier: Verifier, responses: Sequence[str], golds: Sequence[Gold]
) -> list[Verdict]:
    """Return only the verdicts of ``judge_unique``."""
    return [verdict for verdict, _ in judge_unique(verifier, responses, golds)]


def judge_unique(
    verifier: Verifier, responses: Sequence[str], golds: Sequence[Gold]
) -> list[VerdictAndAnswer]:
    """Judge ``responses[i]`` against ``golds[i]``; identical pairs are judged once.

    A verifier must not raise. If it does, its pairs are judged one by one, and each pair that it
    raises on gets an ``error`` verdict with the exception as its reason, so that one unusual
    response does not end a run. If it raises on every pair, that is an error.

    Returns:
        One verdict for each response, in order, with its answer if the verifier reads the answer
        while it judges (``CheckedAnswers.at_once``), else None.

    Raises:
        PluginError: the verifier returned a wrong number of verdicts or a value that is not a
            ``Verdict``, or raised on every pair.
        ValueError: the numbers of responses and golds differ.
    """
    owner = owner_of("verifier", verifier)
    both = getattr(verifier, AT_ONCE, None)
    if both is not None:
        require_methods(owner, verifier, AT_ONCE, "answer")

    def ask(texts: Sequence[str], wanted: Sequence[Gold]) -> list[VerdictAndAnswer]:
        if both is None:
            found = verifier.verify(list(texts), list(wanted))
            return [(v, None) for v in _checked(owner, found, len(texts), verifier.verify)]
        return _checked_pairs(owner, both(list(texts), list(wanted)), len(texts), both)

    def judge(texts: Sequence[str], wanted: Sequence[Gold]) -> list[VerdictAndAnswer]:
        try:
            return ask(texts, wanted)
        except GapftError:
            raise
        except FAULTS as error:
            first = error
        judged, raised = [], 0
        for text, gold in zip(texts, wanted, strict=True):
            try:
                judged += ask([text], [gold])
            except GapftError:
                raise
            except FAULTS as error:
                raised += 1
                verdict = Verdict("error", f"the verifier raised {describe(error)}")
                judged.append((verdict, None))
        if raised == len(texts):
            raise PluginError(
                f"{owner.who} raised on all {raised} pairs: {describe(first)}"
                f"{own_line(first, owner.home)}"
            ) from first
        return judged

    return once_each(judge, responses, golds)


def check_golds(verifier: Verifier, golds: Iterable[tuple[Gold, str]]) -> None:
    """Check gold answers before responses are generated.

    Args:
        verifier: any verifier. It may have a method ``check_gold(gold) -> str``, which returns ""
            for a valid gold, else a description of the fault; without the method all golds pass.
        golds: each gold with the place of its record, such as ``train.jsonl, line 7``.

    Raises:
        UserError: a gold is invalid; the message begins with its place.
        PluginError: ``check_gold`` raised, or returned a value that is not text.
    """
    check = getattr(verifier, "check_gold", None)
    owner = owner_of("verifier", verifier)
    for gold, place in golds:
        # A mapping may be a complete document, in which an unused field may be missing (NaN).
        if fault := json_fault(gold, finite=not isinstance(gold, Mapping)):
            raise UserError(f"{place}: the gold answer {fault}; expected a JSON value")
        if check is None:
            continue
        try:
            fault = check(gold)
        except GapftError:
            raise
        except FAULTS as error:
            raise PluginError(f"{place}: in check_gold, {owner.raised(error)}") from error
        if not isinstance(fault, str):
            raise owner.broke(
                f'returned {short(fault)} from check_gold; expected text, "" for a valid gold',
                check,
            )
        if fault:
            raise UserError(f"{place}: {fault}")


def once_each(
    judge: Callable[[Sequence[str], Sequence[Gold]], list[T]],
    responses: Sequence[str],
    golds: Sequence[Gold],
) -> list[T]:
    """Call ``judge`` with the distinct pairs, and return its results for all pairs.

    Two golds are equal if their JSON is equal; the order of keys does not matter.

    Args:
        judge: a function of distinct responses and their golds, which returns a result for each
            pair, in order.
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
    digests = {key: _digest(gold) for key, gold in objects.items()}
    keys = [(text, digests[id(gold)]) for text, gold in zip(responses, golds, strict=True)]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first.values())
    if not distinct:
        return []
    verdicts = judge([responses[i] for i in distinct], [golds[i] for i in distinct])
    by_key = {keys[i]: verdict for i, verdict in zip(distinct, verdicts, strict=True)}
    return [by_key[key] for key in keys]


def _digest(gold: Gold) -> bytes:
    spelled = json.dumps(gold, sort_keys=True, default=repr)
    return hashlib.sha256(spelled.encode()).digest()


def _checked_pairs(
    owner: Registered, answered: object, count: int, by: object
) -> list[VerdictAndAnswer]:
    if not isinstance(answered, list | tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 for pair in answered
    ):
        raise owner.broke(
            f"returned {short(answered)} from {AT_ONCE}; expected a list of pairs "
            "(verdict, answer)",
            by,
        )
    verdicts = _checked(owner, [verdict for verdict, _ in answered], count, by)
    return [
        (verdict, checked_answer(owner, answer, AT_ONCE, by))
        for verdict, (_, answer) in zip(verdicts, answered, strict=True)
    ]


def _checked(owner: Registered, verdicts: object, count: int, by: object) -> list[Verdict]:
    if not isinstance(verdicts, list | tuple) or not all(isinstance(v, Verdict) for v in verdicts):
        raise owner.broke(
            f"returned {type(verdicts).__name__} {short(verdicts)}; expected a list of "
            "gapft_harness.api.Verdict",
            by,
        )
    if len(verdicts) != count:
        raise owner.broke(f"returned {len(verdicts)} verdicts for {count} pairs", by)
    for verdict in verdicts:
        if not isinstance(verdict.status, str) or verdict.status not in STATUSES:
            raise owner.broke(
                f"returned a verdict with the status {short(verdict.status)}; expected one of "
                f"{', '.join(STATUSES)}",
                by,
            )
        if not isinstance(verdict.reason, str):
            raise owner.broke(f"returned the reason {short(verdict.reason)}; expected text", by)
    # A reason may quote a response with lone surrogates, which tables cannot store.
    return [v if v.reason.isascii() else replace(v, reason=whole_text(v.reason)) for v in verdicts]
