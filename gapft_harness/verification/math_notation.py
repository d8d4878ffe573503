r"""Spells out what math-verify reads otherwise than people do: primes and mixed numbers.

It drops primes, so that ``E`` and ``E'`` would be one point, and reads ``2 1/2`` and ``-2\frac12``
as anything but -5/2 and 5/2.
"""

from __future__ import annotations

import re

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
