"""Compares two answers with math-verify. Runs in worker processes alone (see ``pool.py``).

math-verify's own time-outs are switched off: they raise inside sympy, where the exception may be
swallowed, and what is left of them is reported as a wrong answer. The worker pool keeps time.
"""

from __future__ import annotations

import itertools
import logging
import re
from typing import Any, NotRequired, TypedDict

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.errors import TimeoutException

from gapft_harness.verification.quantities import make_comparable
from gapft_harness.verification.written_math import clean_response, complete_number


class AnswersCompared(TypedDict):
    """What a worker reports of one pair; ``status`` as in ``records.Verdict``.

    ``answer``: of a whole response, what was found as its answer.
    """

    status: str
    reason: str
    answer: NotRequired[str]


def prepare() -> None:
    """Builds parser tables and sympy's caches before the first pair's clock starts."""
    logging.disable(logging.WARNING)
    compare(["\\frac{1}{2}+x", "x+0.5"])


def compare(pair: list[str]) -> AnswersCompared:
    """Compares ``[gold, answer]``, both LaTeX without delimiters or box.

    ``[gold, response, "anywhere"]`` first takes the answer out of a whole response, by
    math-verify's own extraction; no gold, "", takes it out and compares nothing.
    """
    gold, answer, *whole = pair
    if whole:
        return _compare_whole(gold, answer)
    if (pair_of_latex := make_comparable(gold, answer)) is None:
        return AnswersCompared(status="fail", reason="")
    gold, answer = pair_of_latex
    try:
        wanted, given = _parse(gold), _parse(answer)
        if not wanted:
            return AnswersCompared(status="error", reason="the gold answer cannot be parsed")
        if not given:
            return AnswersCompared(status="fail", reason="the answer in the box cannot be parsed")
        if in_other_bases(gold, answer):
            return AnswersCompared(status="fail", reason="")
        for g, t in itertools.product(wanted, given):
            if _equal(g, t):
                return AnswersCompared(status="pass", reason="")
    except TimeoutException:
        return AnswersCompared(status="timeout", reason="a time-out inside math-verify")
    return AnswersCompared(status="fail", reason="")


def _compare_whole(gold: str, response: str) -> AnswersCompared:
    text = clean_response(response)
    try:
        found = parse(text, [LatexExtractionConfig(), ExprExtractionConfig()], parsing_timeout=0)
    except TimeoutException:
        return AnswersCompared(status="timeout", reason="a time-out inside math-verify")
    answer = complete_number(text, found[-1]) if found and isinstance(found[-1], str) else ""
    if not answer:
        return AnswersCompared(status="fail", reason="no answer found")
    if not gold:
        return AnswersCompared(status="fail", reason="", answer=answer)
    return AnswersCompared(**compare([gold, answer]), answer=answer)


def _parse(latex: str) -> list[Any]:
    """Candidates for what ``latex`` means, as sympy objects and, last, the text itself.

    Parsed as inline mathematics, and with LaTeX extraction alone: math-verify's plain-expression
    extraction would pick a number out of a text that does not parse. Line breaks end inline
    mathematics, so they become spaces.
    """
    found: list[Any] = parse(
        f"${spelled_out(' '.join(latex.split()))}$",
        [LatexExtractionConfig()],
        parsing_timeout=0,
    )
    return found


def _equal(gold: Any, answer: Any) -> bool:
    try:
        return bool(verify(gold, answer, timeout_seconds=0, raise_on_error=True))
    except MemoryError:
        raise  # says nothing about the answer: the pool reports it as an error
    except Exception:
        return False  # as math-verify has it: what cannot be compared is not equal


# Spells out what math-verify reads otherwise than people do: primes and mixed numbers.
#
# It drops primes, so that ``E`` and ``E'`` would be one point, and reads ``2 1/2`` and
# ``-2\frac12`` as anything but -5/2 and 5/2.


_PRIME_MARKS = str.maketrans({"′": "'", "’": "'", "″": "''", "‴": "'''"})
_RAISED = re.compile(r"\^\s*(?:\{\s*((?:\\prime\b\s*|'\s*)+)\}|(\\prime(?![a-zA-Z])))")
_INDEX = r"(?:_(\w|\{[\w ]+\}))?"
_PRIMED = re.compile(rf"(\\[a-zA-Z]+|[a-zA-Z]){_INDEX}('+){_INDEX}")
_GROUP_PRIMED = re.compile(r"(?<=[)}\]])('+)")
_GAP = r"(?:\s|\\[ ,;:!]|~)*"
_DIGITS = r"(?:\{\s*(\d{1,18})\s*\}|(\d))"
# The whole part is no exponent, index, decimal or part of a longer number.
_MIXED = re.compile(
    rf"(?<![\w.,^_/])(\d{{1,18}})(?:{_GAP}\\[dtc]?frac\s*{_DIGITS}\s*{_DIGITS}"
    r"|(?:\s|\\[ ,;:!]|~)+(\d{1,18})\s*/\s*(\d{1,18})(?![\d./]))"
)
_BASED = re.compile(r"[-+]?[0-9A-Z.,\s]+_\{?\s*(\d{1,18})\s*\}?")
#: Marks a symbol as primed: no answer has such an index.
_MARK = "777"


def spelled_out(latex: str) -> str:
    r"""Primes as an index of their letter, and mixed numbers as one fraction.

    ``E'``, ``E′`` and ``E^{\prime}`` become one and the same, and other than ``E``. A prime of a
    number (feet, minutes of arc) and an apostrophe within a word stay. ``2\frac{3}{2}`` is no mixed
    number and stays too.
    """
    text = latex.translate(_PRIME_MARKS)
    text = _RAISED.sub(lambda m: "'" * (m[1] or m[2]).replace("\\prime", "'").count("'"), text)
    text = _PRIMED.sub(_indexed, text)
    text = _GROUP_PRIMED.sub(lambda m: f" q_{{{_MARK}{len(m[1])}}} ", text)
    return _MIXED.sub(_improper, text)


def in_other_bases(gold: str, answer: str) -> bool:
    """Whether both are numbers with a base, and not the same one: ``1_6`` and ``1_7``."""
    bases = [_BASED.fullmatch(latex.strip("$ ")) for latex in (gold, answer)]
    return all(bases) and len({int(found[1]) for found in bases if found}) == 2


def _indexed(match: re.Match[str]) -> str:
    before = match.string[match.start() - 1 : match.start()]
    after = match.string[match.end() : match.end() + 1]
    if before.islower() and after.islower():
        return match[0]  # as in "Tom's"
    parts = [part.strip("{}") for part in (match[2], match[4]) if part]
    return f"{match[1]}_{{{','.join([*parts, f'{_MARK}{len(match[3])}'])}}}"


def _improper(match: re.Match[str]) -> str:
    whole, *parts = (int(part) for part in match.groups() if part)
    over, under = parts
    if not over < under:
        return match[0]
    return f"\\frac{{{whole * under + over}}}{{{under}}}"
