"""Gold answers as classes of problems, and responses that are an answer and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: A response that is an answer alone: one word, such as ``A``, ``A.`` or ``(A)``.
_ANSWER = re.compile(r"\W*(\w+)\W*")


def gold_answer(gold: Any) -> str | None:
    """Return the class of a gold answer: an option's letter, a word, a number; None of others.

    Args:
        gold: a text or a number, or a mapping with one under ``answer``.
    """
    answer = gold.get("answer") if isinstance(gold, Mapping) else gold
    if isinstance(answer, bool) or not isinstance(answer, str | int) or answer == "":
        return None
    return str(answer).strip()


def gold_fault(gold: Any) -> str:
    """Say what keeps a gold answer from being a class of problems; empty: nothing.

    Args:
        gold: as ``gold_answer`` takes it.
    """
    if gold_answer(gold) is not None:
        return ""
    return f"is {gold!r:.60}; expected a text or a number, or a mapping with one under 'answer'"


def is_answer_alone(text: str, gold: Any) -> bool:
    """Whether a response says the gold answer and nothing else, so that any problem may have it.

    Args:
        text: the response.
        gold: as ``gold_answer`` takes it.
    """
    found = _ANSWER.fullmatch(text)
    answer = gold_answer(gold)
    return found is not None and answer is not None and found[1].casefold() == answer.casefold()
