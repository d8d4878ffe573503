"""Verification of many responses: each distinct (response, gold) pair is judged once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gapft_harness.errors import GapftError, PluginError, UserError
from gapft_harness.protocols import Verifier
from gapft_harness.records import CONTEXT, Gold, Response, Verdict

T = TypeVar("T")

#: The verdict on a response that was never generated. The verifier is not asked: V = 0.
BEYOND_CONTEXT = Verdict("fail", "prompt does not fit the context")


def verify_responses(
    verifier: Verifier, responses: Sequence[Response], golds: Sequence[Gold]
) -> list[Verdict]:
    """Judges responses as ``verify_unique`` does, and fails those that were not generated."""
    pairs = list(zip(responses, golds, strict=True))
    written = [(r.text, gold) for r, gold in pairs if r.finish_reason != CONTEXT]
    judged = iter(verify_unique(verifier, [t for t, _ in written], [gold for _, gold in written]))
    return [BEYOND_CONTEXT if r.finish_reason == CONTEXT else next(judged) for r in responses]


def verify_unique(
    verifier: Verifier, responses: Sequence[str], golds: Sequence[Gold]
) -> list[Verdict]:
    """Judges ``responses[i]`` against ``golds[i]``, identical pairs once.

    A verifier must not raise. If it does all the same, its pairs are judged one by one, and those
    it raises on get an ``error`` verdict that says what was raised, so that one odd response does
    not lose a run. A verifier that raises on every pair is broken, and is an error itself.

    Args:
        verifier: any verifier, bundled or a plugin's.
        responses: what the model wrote.
        golds: JSON values, as many as responses.

    Returns:
        One verdict for each response, in order.

    Raises:
        PluginError: the verifier returned another number of verdicts than it got pairs, something
            that is no ``Verdict``, or raised on every pair.
        ValueError: as many golds as responses were expected.
    """
    name = type(verifier).__qualname__

    def judge(texts: Sequence[str], wanted: Sequence[Gold]) -> list[Verdict]:
        try:
            return _checked(name, verifier.verify(texts, wanted), len(texts))
        except GapftError:
            raise
        except Exception as error:
            first = error
        verdicts, raised = [], 0
        for text, gold in zip(texts, wanted, strict=True):
            try:
                verdicts += _checked(name, verifier.verify([text], [gold]), 1)
            except GapftError:
                raise
            except Exception as error:
                raised += 1
                verdicts.append(Verdict("error", f"the verifier raised {_one_line(error)}"))
        if raised == len(texts):
            raise PluginError(
                f"verifier {name} raised on every one of {raised} pairs: {_one_line(first)}"
            ) from first
        return verdicts

    return once_each(judge, responses, golds)


def check_golds(verifier: Verifier, golds: Iterable[tuple[Gold, str]]) -> None:
    """Checks gold answers before anything is generated for them.

    Args:
        verifier: any verifier. It may have a method ``check_gold(gold) -> str``, which gives ""
            for a gold it can judge by, else what is wrong with it; without one all pass.
        golds: each gold with the place of its record, such as ``train.jsonl, line 7``.

    Raises:
        UserError: a gold is refused; the message begins with its place.
        PluginError: ``check_gold`` raised, or returned something that is no text.
    """
    check = getattr(verifier, "check_gold", None)
    name = type(verifier).__qualname__
    for gold, place in golds:
        if check is None:
            continue  # Reading them is a check of its own.
        try:
            fault = check(gold)
        except GapftError:
            raise
        except Exception as error:
            raise PluginError(
                f"{place}: check_gold of verifier {name} raised {_one_line(error)}"
            ) from error
        if not isinstance(fault, str):
            raise PluginError(
                f'check_gold of verifier {name} must return text, "" if nothing is wrong; '
                f"found {type(fault).__name__}: {repr(fault)[:80]}"
            )
        if fault:
            raise UserError(f"{place}: {fault}")


def once_each(
    judge: Callable[[Sequence[str], Sequence[Gold]], list[T]],
    responses: Sequence[str],
    golds: Sequence[Gold],
) -> list[T]:
    """Calls ``judge`` with the distinct pairs, and deals what it says of them out to all.

    Two golds are the same if their JSON is, whatever the order of keys.

    Raises:
        ValueError: there are not as many golds as responses.
    """
    if len(responses) != len(golds):
        raise ValueError(f"{len(responses)} responses, but {len(golds)} gold answers")
    # A gold may be large, and one object serves all responses to a problem: spell each once.
    objects = {id(gold): gold for gold in golds}
    spelled = {key: json.dumps(gold, sort_keys=True, default=repr) for key, gold in objects.items()}
    keys = [(text, spelled[id(gold)]) for text, gold in zip(responses, golds, strict=True)]
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first.values())
    if not distinct:
        return []
    verdicts = judge([responses[i] for i in distinct], [golds[i] for i in distinct])
    by_key = {keys[i]: verdict for i, verdict in zip(distinct, verdicts, strict=True)}
    return [by_key[key] for key in keys]


def _checked(name: str, verdicts: object, count: int) -> list[Verdict]:
    if not isinstance(verdicts, list | tuple) or not all(isinstance(v, Verdict) for v in verdicts):
        raise PluginError(
            f"verifier {name} must return a list of gapft_harness.records.Verdict, "
            f"found {type(verdicts).__name__}: {repr(verdicts)[:80]}"
        )
    if len(verdicts) != count:
        raise PluginError(f"verifier {name} returned {len(verdicts)} verdicts for {count} pairs")
    return list(verdicts)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
