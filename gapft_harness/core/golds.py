"""Gold answers as classes of problems, and responses that consist of an answer alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: A response that is an answer alone: one word, such as ``A``, ``A.`` or ``(A)``.
_ANSWER = re.compile(r"\W*(\w+)\W*")


def gold_answer(gold: Any) -> str | None:
    """Return the class of a gold answer: an option's letter, a word or a number; else None.

    Args:
        gold: a text or a whole number, or a mapping with one under ``answer``.
    """
    answer = gold.get("answer") if isinstance(gold, Mapping) else gold
    if isinstance(answer, bool) or not isinstance(answer, str | int):
        return None
    return str(answer).strip() or None


def gold_fault(gold: Any) -> str:
    """Describe why a gold answer cannot be a class of problems; empty if it can.

    Args:
        gold: the gold answer, see ``gold_answer``.
    """
    if gold_answer(gold) is not None:
        return ""
    return (
        f"is {gold!r:.60}; expected a text or a whole number, or a mapping with one under 'answer'"
    )


def is_answer_alone(text: str, gold: Any) -> bool:
    """Check whether a response is the gold answer and nothing else.

    Such a response does not depend on the problem: it fits any problem with the same gold answer.

    Args:
        text: the response.
        gold: the gold answer, see ``gold_answer``.
    """
    match = _ANSWER.fullmatch(text)
    answer = gold_answer(gold)
    return match is not None and answer is not None and match[1].casefold() == answer.casefold()
