r"""Read answers that are not arithmetic: clock times, dates, and numbers with a base."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from fractions import Fraction

from sympy import Rational

from gapft_harness.verification.mathematics.tokens import Token, join_tokens
from gapft_harness.verification.mathematics.values import (
    Clock,
    Date,
    Malformed,
    Ratio,
    Scalar,
    Value,
)
from gapft_harness.verification.mathematics.vocabulary import MONTHS, NUMERALS

_CLOCK = re.compile(
    r"(?:at )?(\d{1,2})(?: ?: ?(\d{2})(?: ?: ?(\d{2}))?)? ?(am|pm|noon|midnight|o'clock)?"
    r"(?: (am|pm|in the morning|in the afternoon))?"
)
_HALVES = {
    **dict.fromkeys(("am", "midnight", "in the morning"), 0),
    **dict.fromkeys(("pm", "noon", "in the afternoon"), 12),
}
_MONTH = "|".join((*MONTHS, *(month[:3] for month in MONTHS), "sept"))
_DAY = r"(\d{1,2})(?: ?(?:st|nd|rd|th))?"
_MONTH_FIRST = re.compile(rf"({_MONTH}) ?{_DAY}(?:,? ?(\d{{4}}))?")
_DAY_FIRST = re.compile(rf"(?:the )?{_DAY}(?: of)? ?({_MONTH})(?:,? ?(\d{{4}}))?")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_DIGITS = r"(-?)\(?([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?"
_BASED = re.compile(rf"{_DIGITS}_\{{?(?:base ?)?(\d{{1,2}}|[a-z]+)\}}?")
_BASE_WORD = re.compile(rf"{_DIGITS} ?\(? ?(?:in )?base[- ]?(\d{{1,2}}|[a-z]+)\)?")


def read_special(tokens: Sequence[Token]) -> Value | None:
    """Return a time, a date or a number with a base; None for any other answer.

    Raises:
        Malformed: it has such a form, but no such time, date or digits exist.
    """
    if len(tokens) > 24:
        return None
    text = write_plainly(tokens)
    return _read_clock(text) or _read_date(text) or _read_based(join_tokens(tuple(tokens)), text)


def write_plainly(tokens: Sequence[Token]) -> str:
    """Return tokens in lower case with single spaces between words and numbers."""
    text = ""
    for token in tokens:
        written = token.text.lower()
        if token.kind == "word":
            written = written.replace(".", "")
        elif token.kind == "group":
            inside = write_plainly(token.inside)
            written = inside if token.text == "{" else f"{token.text}{inside}{token.closing}"
        gap = token.is_spaced or token.kind == "word" or (text[-1:].isalpha() and written.isdigit())
        text += f" {written}" if gap and text and written not in (",", ":") else written
    return re.sub(r"\b([ap])\.? ?m\b\.?", r"\1m", text)


def _read_clock(text: str) -> Value | None:
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    hour = int(match[1])
    minute = int(match[2] or 0)
    second = int(match[3] or 0)
    half = match[5] or match[4] or ""
    if hour > 24 or minute > 59 or second > 59:
        if half:
            raise Malformed("there is no such time")
        return None
    terms = (Rational(hour), Rational(minute), *([Rational(second)] if match[3] else []))
    may_be_ratio = match[2] and not match[2].startswith("0") and not half  # not 4:05
    ratio = Ratio(terms) if may_be_ratio else None
    if half in _HALVES and hour <= 12:
        hour = hour % 12 + _HALVES[half]
    seconds = (hour * 60 + minute) * 60 + second
    return Clock(seconds, half in _HALVES, ratio)


def _read_date(text: str) -> Value | None:
    if match := _ISO.fullmatch(text):
        year, month, day = map(int, match.groups())
    elif match := _MONTH_FIRST.fullmatch(text):
        month = _find_month(match[1])
        day = int(match[2])
        year = int(match[3] or 0)
    elif match := _DAY_FIRST.fullmatch(text):
        month = _find_month(match[2])
        day = int(match[1])
        year = int(match[3] or 0)
    else:
        return None
    try:
        date(year or 2000, month, day)
    except ValueError as error:
        raise Malformed("there is no such day") from error
    return Date(month, day, year or None)


def _find_month(name: str) -> int:
    return next(n for n, month in enumerate(MONTHS, 1) if month.startswith(name[:3]))


def _read_based(text: str, plain: str) -> Value | None:
    match = _BASED.fullmatch(text) or _BASE_WORD.fullmatch(plain)
    if match is None:
        return None
    sign, digits, written = match.groups()
    if not written.isdigit() and written not in NUMERALS:
        return None
    base = int(written) if written.isdigit() else NUMERALS[written]
    if not 2 <= base <= 36 or not _are_digits(digits, base):
        return None
    whole, _, fraction = digits.partition(".")
    try:
        number = int(sign + whole + fraction, base)
    except ValueError as error:
        raise Malformed(f"a digit of {digits} is not below the base {base}") from error
    value = Fraction(number, base ** len(fraction))
    return Scalar(Rational(value.numerator, value.denominator), base=base)


def _are_digits(text: str, base: int) -> bool:
    """Tell a number from a product of variables: ``2B_{16}``, but not ``2a_{11}``, ``3x_2``."""
    if not any(character.isalpha() for character in text):
        return True
    is_written_as_one = text.isupper() or base == 16 or re.search("[a-z][0-9]", text)
    are_valid = all(c == "." or int(c, 36) < base for c in text)
    return bool(is_written_as_one) and are_valid and len(text) > 1
