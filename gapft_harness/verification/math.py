"""Compare two answers with math-verify. This runs only in worker processes (see ``pool.py``).

math-verify's own time-outs are disabled: they raise inside sympy, which may catch the exception,
and the rest are reported as wrong answers. The worker pool enforces the time limit instead.
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
    """A worker's report on one pair; ``status`` as in ``records.Verdict``.

    ``answer`` is the answer found in a complete response.
    """

    status: str
    reason: str
    answer: NotRequired[str]


def prepare() -> None:
    """Build parser tables and sympy's caches before the time limit of the first pair starts."""
    logging.disable(logging.WARNING)
    compare(["\\frac{1}{2}+x", "x+0.5"])


def compare(pair: list[str]) -> AnswersCompared:
    """Compare ``[gold, answer]``, both LaTeX without delimiters or box, in a ``WorkerPool``.

    Args:
        pair: the gold and the answer. With ``[gold, response, "anywhere"]`` the answer is first
            extracted from a complete response by math-verify; with an empty gold it is only
            extracted.
    """
    gold, answer, *whole = pair
    if whole:
        return _compare_whole(gold, answer)
    if (pair_of_latex := make_comparable(gold, answer)) is None:
        return AnswersCompared(status="fail", reason="")
    gold, answer = pair_of_latex
    try:
        gold_candidates, answer_candidates = _parse_latex(gold), _parse_latex(answer)
        if not gold_candidates:
            return AnswersCompared(status="error", reason="the gold answer cannot be parsed")
        if not answer_candidates:
            return AnswersCompared(status="fail", reason="the answer in the box cannot be parsed")
        if have_different_bases(gold, answer):
            return AnswersCompared(status="fail", reason="")
        for g, t in itertools.product(gold_candidates, answer_candidates):
            if _are_equal(g, t):
                return AnswersCompared(status="pass", reason="")
    except TimeoutException:
        return AnswersCompared(status="timeout", reason="a time-out inside math-verify")
    return AnswersCompared(status="fail", reason="")


def _compare_whole(gold: str, response: str) -> AnswersCompared:
    text = clean_response(response)
    try:
        candidates = parse(
            text, [LatexExtractionConfig(), ExprExtractionConfig()], parsing_timeout=0
        )
    except TimeoutException:
        return AnswersCompared(status="timeout", reason="a time-out inside math-verify")
    answer = (
        complete_number(text, candidates[-1])
        if candidates and isinstance(candidates[-1], str)
        else ""
    )
    if not answer:
        return AnswersCompared(status="fail", reason="no answer found")
    if not gold:
        return AnswersCompared(status="fail", reason="", answer=answer)
    return AnswersCompared(**compare([gold, answer]), answer=answer)


def _parse_latex(latex: str) -> list[Any]:
    """Parse LaTeX to candidates: sympy objects and, last, the text itself.

    It is parsed as inline mathematics with LaTeX extraction only: math-verify's plain-expression
    extraction would take a number from a text that does not parse. Line breaks would end inline
    mathematics, so they become spaces.
    """
    candidates: list[Any] = parse(
        f"${spell_out(' '.join(latex.split()))}$",
        [LatexExtractionConfig()],
        parsing_timeout=0,
    )
    return candidates


def _are_equal(gold: Any, answer: Any) -> bool:
    try:
        return bool(verify(gold, answer, timeout_seconds=0, raise_on_error=True))
    except MemoryError:
        raise  # it does not depend on the answer, so the pool reports an error
    except Exception:
        return False  # math-verify's rule: values that cannot be compared are not equal


# Rewrite primes and mixed numbers, which math-verify misreads.
#
# It drops primes, so that ``E`` and ``E'`` would be the same point, and does not read ``2 1/2`` and
# ``-2\frac12`` as 5/2 and -5/2.


_PRIME_MARKS = str.maketrans({"′": "'", "’": "'", "″": "''", "‴": "'''"})
_RAISED = re.compile(r"\^\s*(?:\{\s*((?:\\prime\b\s*|'\s*)+)\}|(\\prime(?![a-zA-Z])))")
_INDEX = r"(?:_(\w|\{[\w ]+\}))?"
_PRIMED = re.compile(rf"(\\[a-zA-Z]+|[a-zA-Z]){_INDEX}('+){_INDEX}")
_GROUP_PRIMED = re.compile(r"(?<=[)}\]])('+)")
_GAP = r"(?:\s|\\[ ,;:!]|~)*"
_DIGITS = r"(?:\{\s*(\d{1,18})\s*\}|(\d))"
# The integer part must not be an exponent, an index, a decimal or part of a longer number.
_MIXED = re.compile(
    rf"(?<![\w.,^_/])(\d{{1,18}})(?:{_GAP}\\[dtc]?frac\s*{_DIGITS}\s*{_DIGITS}"
    r"|(?:\s|\\[ ,;:!]|~)+(\d{1,18})\s*/\s*(\d{1,18})(?![\d./]))"
)
_BASED = re.compile(r"[-+]?[0-9A-Z.,\s]+_\{?\s*(\d{1,18})\s*\}?")
#: The index of a primed symbol; no answer has such an index.
_MARK = "777"


def spell_out(latex: str) -> str:
    r"""Rewrite primes as an index of their letter, and mixed numbers as one fraction.

    ``E'``, ``E′`` and ``E^{\prime}`` become equal, and different from ``E``. A prime after a number
    (feet, minutes of arc) and an apostrophe within a word are unchanged, and so is
    ``2\frac{3}{2}``, which is not a mixed number.
    """
    text = latex.translate(_PRIME_MARKS)
    text = _RAISED.sub(lambda m: "'" * (m[1] or m[2]).replace("\\prime", "'").count("'"), text)
    text = _PRIMED.sub(_index_primes, text)
    text = _GROUP_PRIMED.sub(lambda m: f" q_{{{_MARK}{len(m[1])}}} ", text)
    return _MIXED.sub(_convert_mixed_number, text)


def have_different_bases(gold: str, answer: str) -> bool:
    """Check whether both are numbers with a base, and the bases differ: ``1_6`` and ``1_7``."""
    bases = [_BASED.fullmatch(latex.strip("$ ")) for latex in (gold, answer)]
    return all(bases) and len({int(match[1]) for match in bases if match}) == 2


def _index_primes(match: re.Match[str]) -> str:
    previous = match.string[match.start() - 1 : match.start()]
    following = match.string[match.end() : match.end() + 1]
    if previous.islower() and following.islower():
        return match[0]  # as in "Tom's"
    parts = [part.strip("{}") for part in (match[2], match[4]) if part]
    return f"{match[1]}_{{{','.join([*parts, f'{_MARK}{len(match[3])}'])}}}"


def _convert_mixed_number(match: re.Match[str]) -> str:
    whole, *parts = (int(part) for part in match.groups() if part)
    numerator, denominator = parts
    if not numerator < denominator:
        return match[0]
    return f"\\frac{{{whole * denominator + numerator}}}{{{denominator}}}"
