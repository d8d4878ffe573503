"""Compares two answers with math-verify. Runs in worker processes alone (see ``pool.py``).

math-verify's own time-outs are switched off: they raise inside sympy, where the exception may be
swallowed, and what is left of them is reported as a wrong answer. The worker pool keeps time.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any, NotRequired, TypedDict

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.errors import TimeoutException

from gapft_harness.verification.math_notation import in_other_bases, spelled_out


class Compared(TypedDict):
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


def compare(pair: list[str]) -> Compared:
    """Compares ``[gold, answer]``, both LaTeX without delimiters or box.

    ``[gold, response, "anywhere"]`` first takes the answer out of a whole response, by
    math-verify's own extraction; no gold, "", takes it out and compares nothing.
    """
    gold, answer, *whole = pair
    if whole:
        return _compare_whole(gold, answer)
    try:
        wanted, given = _parse(gold), _parse(answer)
        if not wanted:
            return Compared(status="error", reason="the gold answer cannot be parsed")
        if not given:
            return Compared(status="fail", reason="the answer in the box cannot be parsed")
        if in_other_bases(gold, answer):
            return Compared(status="fail", reason="")
        for g, t in itertools.product(wanted, given):
            if _equal(g, t):
                return Compared(status="pass", reason="")
    except TimeoutException:
        return Compared(status="timeout", reason="a time-out inside math-verify")
    return Compared(status="fail", reason="")


def _compare_whole(gold: str, response: str) -> Compared:
    try:
        found = parse(
            response, [LatexExtractionConfig(), ExprExtractionConfig()], parsing_timeout=0
        )
    except TimeoutException:
        return Compared(status="timeout", reason="a time-out inside math-verify")
    answer = " ".join(found[-1].split()) if found and isinstance(found[-1], str) else ""
    if not answer:
        return Compared(status="fail", reason="no answer found")
    if not gold:
        return Compared(status="fail", reason="", answer=answer)
    return Compared(**compare([gold, answer]), answer=answer)


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
