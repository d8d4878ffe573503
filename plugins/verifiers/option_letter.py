"""``option_letter``: checks whether a response names the right option of a problem.

Three rules; docs/verifiers.md shows each on the same responses.

``whole_response``
    The response, stripped, is exactly an option letter: ``A``, ``A.``, ``A)`` or ``(A)``. The
    paper's rule for Llama and Qwen on LogiQA 2.0 (table "Implementation Details for Logic
    Experiments").
``first_explicit``
    The first explicit statement of an option anywhere in the response. The paper's rule in all
    other cases; it gives no pattern, so ``statements.py`` is this project's interpretation.
``permissive``
    ``whole_response``, or a letter followed by its option's text; text after that is ignored. The
    reward of the paper's online control (Section "Online Optimization at Matched Update Steps"),
    which scores responses that begin in this way and continue.

Letters are the capitals A to Z of ASCII; ``first_explicit`` also reads ``b`` where it is a label,
and a full-width letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gapft_harness.api import Gold, Register, Verdict, hookimpl
from gapft_harness.plugins.verifiers.statements import Statement, find_first_statement

_WHOLE = re.compile(r"([A-Z])[.)]?|\(([A-Z])\)")
#: Incremented when the reading of a rule changes, to explain verdicts that differ.
_RULES = {"first_explicit": 7, "permissive": 2}
_NEEDS_TEXTS = "the permissive rule needs the options' texts in the gold answer"
#: A letter alone at the start, not the article in "A man walks in".
_OPENING = re.compile(r"\s*(?:\(([A-Z])\)|([A-Z])(?=[.):,;\n]|\s*[-–—]|\s*$))")
_LABEL = re.compile(r"\s*(?:\(([A-Z])\)|([A-Z])(?!\w))[.):,]?\s*[-–—]?\s*")


@dataclass(frozen=True, slots=True)
class Choice:
    """A gold answer: the right letter and, if known, the texts of all options in order."""

    letter: str
    options: tuple[str, ...] = ()

    @property
    def last_letter(self) -> str:
        """The last letter that is an option; Z if the options are unknown."""
        return _find_last_letter(self.options) or "Z"


#: From a response and the options' texts to the option that it names.
Rule = Callable[[str, Sequence[str]], Statement]


class OptionLetter:
    """Compares the option letter that a response states with the gold.

    Args:
        rule: ``whole_response``, ``first_explicit`` or ``permissive``.
    """

    def __init__(
        self, rule: Literal["whole_response", "first_explicit", "permissive"] = "whole_response"
    ) -> None:
        rules: Mapping[str, Rule] = {
            "whole_response": read_whole_response,
            "first_explicit": read_first_explicit,
            "permissive": read_permissive,
        }
        self.rule = rule
        self._read = rules[rule]

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response.

        Each gold is ``{"answer": "B", "options": [texts]}`` or the bare letter. A gold that is not
        an option gets an ``error`` verdict.
        """
        choices = {id(gold): read_gold(gold) for gold in golds}
        verdicts = []
        for response, gold in zip(responses, golds, strict=True):
            choice = choices[id(gold)]
            if isinstance(choice, str):
                verdicts.append(Verdict("error", choice))
            elif self.rule == "permissive" and not choice.options:
                verdicts.append(Verdict("error", _NEEDS_TEXTS))
            else:
                read = self._read(response, _find_options(choice))
                verdicts.append(_compare(read, choice))
        return verdicts

    def check_gold(self, gold: Gold) -> str:
        """Describe the fault of a gold answer under this rule; return ``""`` if it is valid."""
        choice = read_gold(gold)
        if isinstance(choice, str):
            return choice
        return _NEEDS_TEXTS if self.rule == "permissive" and not choice.options else ""

    def answer(self, text: str, gold: Gold = None) -> str | None:
        """Return the letter that a response names, right or wrong; None if not exactly one.

        Args:
            gold: if given, its options' texts are used as in ``verify``; its letter is ignored.
        """
        letters = self._read(text, _find_options(read_gold(gold))).letters
        return letters if len(letters) == 1 else None

    def opening(self, text: str, gold: Gold = None) -> str | None:
        """Return the letter that a response opens with, whatever follows; None if there is none.

        Args:
            gold: if given, a letter may be followed by its option's text; its letter is ignored.
        """
        options = _find_options(read_gold(gold))
        letter = read_permissive(text, options).letters
        if letter and letter <= _find_last_letter(options):
            return letter
        label = _OPENING.match(text)
        return (label[1] or label[2]) if label else None

    def describe(self) -> dict[str, Any]:
        """Return the version of the rule, if it has had more than one."""
        return {"rules": _RULES[self.rule]} if self.rule in _RULES else {}


def _find_options(choice: Choice | str) -> Sequence[str]:
    """Return the options' texts of a gold answer that is valid; empty if it is not."""
    return () if isinstance(choice, str) else choice.options


def read_gold(gold: Gold) -> Choice | str:
    """Parse a gold answer; return a description of its fault if it is not a choice."""
    options: tuple[str, ...] = ()
    answer = gold
    if isinstance(gold, Mapping):
        answer = gold.get("answer")
        texts = gold.get("options", [])
        if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
            return "the gold answer's options are not a list of strings"
        if len(texts) > 26:
            return f"{len(texts)} options, but letters go from A to Z"
        options = tuple(texts)
    if not isinstance(answer, str) or not re.fullmatch("[A-Z]", answer):
        return f"the gold answer {answer!r:.40} is not an option letter"
    choice = Choice(answer, options)
    if answer > choice.last_letter:
        return (
            f"the gold answer {answer} is not an option; the options are A to {choice.last_letter}"
        )
    return choice


def _find_last_letter(options: Sequence[str]) -> str:
    """Return the last option's letter; empty if the options are unknown."""
    return chr(ord("A") + len(options) - 1) if options else ""


def read_whole_response(response: str, options: Sequence[str]) -> Statement:
    """Read a response that is exactly a letter, bare or as ``A.``, ``A)`` or ``(A)``."""
    match = _WHOLE.fullmatch(response.strip())
    return (
        Statement(match[1] or match[2]) if match else Statement("", "not exactly an option letter")
    )


def read_first_explicit(response: str, options: Sequence[str]) -> Statement:
    """Read the first explicit statement of an option."""
    return find_first_statement(response, max("H", _find_last_letter(options)), options)


def read_permissive(response: str, options: Sequence[str]) -> Statement:
    """Read the letter alone, or a letter followed by its option's text."""
    letter_only = read_whole_response(response, options)
    if letter_only.letters:
        return letter_only
    label = _LABEL.match(response)
    if label is None:
        return Statement("", "opens with no option letter")
    letter = label[1] or label[2]
    if options and letter > _find_last_letter(options):
        # A label such as "E.", not the word in "I think".
        is_label = _OPENING.match(response)
        return Statement(letter) if is_label else Statement("", "opens with no option letter")
    rest = _normalize(response[label.end() :])
    text = _normalize(options[ord(letter) - ord("A")]) if options else ""
    if not text or not re.match(re.escape(text) + r"(?!\w)", rest):
        return Statement("", f"{letter} is not followed by its option's text")
    return Statement(letter)


def _compare(read: Statement, choice: Choice) -> Verdict:
    letters = read.letters
    if not letters:
        return Verdict("fail", read.reason)
    if letters == choice.letter:
        return Verdict("pass")
    if len(letters) > 1:
        return Verdict("fail", f"said {' and '.join(letters)} together")
    is_beyond = letters > choice.last_letter
    beyond = f", but the options are A to {choice.last_letter}" if is_beyond else ""
    return Verdict("fail", f"said {letters}{beyond}")


def _normalize(text: str) -> str:
    """Normalize case, line breaks, quotes around the text and the full stop at its end."""
    return " ".join(text.casefold().split()).strip("\"'“”‘’*").rstrip(".,;: ")


def _find_permissive_rule(params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Name the rule that also accepts the letter with its text (both: the paper's Table 13)."""
    if params.get("rule", "whole_response") != "whole_response":
        return None
    return "option_letter", {**params, "rule": "permissive"}


def _find_strict_rule(params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Name the rule of the letter alone, for rules that accept more forms."""
    if params.get("rule", "whole_response") == "whole_response":
        return None
    return "option_letter", {**params, "rule": "whole_response"}


@hookimpl
def register_verifiers(register: Register) -> None:
    """Register the verifier."""
    register(
        "option_letter", OptionLetter, permissive=_find_permissive_rule, strict=_find_strict_rule
    )
