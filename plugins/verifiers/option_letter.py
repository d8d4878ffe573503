"""``option_letter``: did the response name the right option of a multiple-choice problem?

Three rules; docs/verifiers.md shows each on the same responses.

``whole_response``
    The response, stripped, is exactly an option letter: ``A``, ``A.``, ``A)`` or ``(A)``. The
    paper's rule for Llama and Qwen on LogiQA 2.0 (table "Implementation Details for Logic
    Experiments").
``first_explicit``
    The first explicit statement of an option anywhere in the response. The paper's rule for all
    else; it gives no pattern, so ``statements.py`` is this project's reading.
``permissive``
    ``whole_response``, or a letter followed by its option's text; what comes after the text is
    not read. The reward of the paper's online control (Section "Online Optimization at Matched
    Update Steps"), which scores responses that open so and go on.

Letters are the capitals A to Z of ASCII; ``first_explicit`` also reads ``b`` where it is a label,
and a full-width letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.api import (
    Gold,
    RegisterVerifier,
    UserError,
    Verdict,
    did_you_mean,
    hookimpl,
    once_each,
)
from gapft_harness.plugins.verifiers.statements import first_statement

_WHOLE = re.compile(r"([A-Z])[.)]?|\(([A-Z])\)")
#: Counts up when what a rule reads changes, so that a verdict that differs for it can be told.
_RULES = {"first_explicit": 2}
_NEEDS_TEXTS = "the permissive rule needs the options' texts in the gold answer"
_LABEL = re.compile(r"\s*(?:\(([A-Z])\)|([A-Z]))[.):,]?\s*[-–—]?\s*")


@dataclass(frozen=True, slots=True)
class Choice:
    """A gold answer: the right letter and, where known, all options' texts in order."""

    letter: str
    options: tuple[str, ...] = ()

    @property
    def last(self) -> str:
        """The last letter that is an option; Z where the options are not known."""
        return chr(ord("A") + len(self.options) - 1) if self.options else "Z"


class OptionLetter:
    """Matches the option letter a response states.

    Args:
        rule: ``whole_response``, ``first_explicit`` or ``permissive``.

    Raises:
        UserError: the rule is unknown.
    """

    def __init__(self, rule: str = "whole_response") -> None:
        rules = {
            "whole_response": whole_response,
            "first_explicit": first_explicit,
            "permissive": permissive,
        }
        if rule not in rules:
            raise UserError(
                f"option_letter: unknown rule {rule!r}; {did_you_mean(str(rule), rules)}"
            )
        self.rule = rule
        self._judge = rules[rule]

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judges each response.

        Each gold is ``{"answer": "B", "options": [texts]}`` or the bare letter. A gold that is no
        option gets an ``error`` verdict.
        """
        return once_each(self._verify_all, responses, golds)

    def check_gold(self, gold: Gold) -> str:
        """What is wrong with a gold answer under this rule, or ``""``."""
        choice = read_gold(gold)
        if isinstance(choice, str):
            return f"{choice}; expected a letter from A to {_last_letter(gold)}"
        return _NEEDS_TEXTS if self.rule == "permissive" and not choice.options else ""

    def describe(self) -> dict[str, Any]:
        """Which edition of its rule it judges by, where there has been more than one."""
        return {"rules": _RULES[self.rule]} if self.rule in _RULES else {}

    def _verify_all(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        verdicts = []
        for response, gold in zip(responses, golds, strict=True):
            choice = read_gold(gold)
            verdicts.append(
                Verdict("error", choice)
                if isinstance(choice, str)
                else self._judge(response, choice)
            )
        return verdicts


def read_gold(gold: Gold) -> Choice | str:
    """The choice that a gold answer describes, or in words why it describes none."""
    options: tuple[str, ...] = ()
    answer = gold
    if isinstance(gold, Mapping):
        answer, texts = gold.get("answer"), gold.get("options", [])
        if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
            return "the gold answer's options are not a list of strings"
        if len(texts) > 26:
            return f"{len(texts)} options, but letters go from A to Z"
        options = tuple(texts)
    if not isinstance(answer, str) or not re.fullmatch("[A-Z]", answer):
        return f"the gold answer {answer!r:.40} is no option letter"
    choice = Choice(answer, options)
    if answer > choice.last:
        return f"the gold answer {answer} is no option: they are A to {choice.last}"
    return choice


def _last_letter(gold: Gold) -> str:
    """The last letter that a gold answer's options leave, as far as they can be read."""
    texts = gold.get("options") if isinstance(gold, Mapping) else None
    count = len(texts) if isinstance(texts, list | tuple) else 0
    return chr(ord("A") + count - 1) if 1 <= count <= 26 else "Z"


def whole_response(response: str, choice: Choice) -> Verdict:
    """The stripped response is the letter, bare or as ``A.``, ``A)`` or ``(A)``."""
    match = _WHOLE.fullmatch(response.strip())
    if match is None:
        return Verdict("fail", "not exactly an option letter")
    return _compare(match[1] or match[2], choice)


def first_explicit(response: str, choice: Choice) -> Verdict:
    """The first explicit statement of an option."""
    last = "H" if not choice.options else max("H", choice.last)
    stated = first_statement(response, last, choice.options)
    if not stated.letters:
        return Verdict("fail", stated.why)
    if len(stated.letters) > 1:
        return Verdict("fail", f"said {' and '.join(stated.letters)} together")
    return _compare(stated.letters, choice)


def permissive(response: str, choice: Choice) -> Verdict:
    """The letter alone, or the letter followed by its option's text."""
    if not choice.options:
        return Verdict("error", _NEEDS_TEXTS)
    if _WHOLE.fullmatch(response.strip()):
        return whole_response(response, choice)
    label = _LABEL.match(response)
    if label is None:
        return Verdict("fail", "opens with no option letter")
    letter = label[1] or label[2]
    if letter > choice.last:
        return _compare(letter, choice)
    said = _plain(response[label.end() :])
    text = _plain(choice.options[ord(letter) - ord("A")])
    if not text or not re.match(re.escape(text) + r"(?!\w)", said):
        return Verdict("fail", f"{letter} is not followed by its option's text")
    return _compare(letter, choice)


def _compare(letter: str, choice: Choice) -> Verdict:
    if letter == choice.letter:
        return Verdict("pass")
    beyond = f", but the options are A to {choice.last}" if letter > choice.last else ""
    return Verdict("fail", f"said {letter}{beyond}")


def _plain(text: str) -> str:
    """Without case, line breaks, quotes around it, and the full stop at its end."""
    return " ".join(text.casefold().split()).strip("\"'“”‘’*").rstrip(".,;: ")


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Registers it."""
    register("option_letter", OptionLetter)
