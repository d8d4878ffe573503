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
    r"(?:at )?(\d{1,2})(?: ?: ?(\d{2}))? ?(am|pm|noon|midnight|o'clock)?(?: (am|pm|in the morning|in the afternoon))?"
)
_HALVES = {"am": 0, "midnight": 0, "in the morning": 0, "pm": 720, "noon": 720, "in the afternoon": 720}  # fmt: skip
_MONTH = "|".join((*MONTHS, *(month[:3] for month in MONTHS), "sept"))
_DAY = r"(\d{1,2})(?: ?(?:st|nd|rd|th))?"
_MONTH_FIRST = re.compile(rf"({_MONTH}) ?{_DAY}(?:,? ?(\d{{4}}))?")
_DAY_FIRST = re.compile(rf"(?:the )?{_DAY}(?: of)? ?({_MONTH})(?:,? ?(\d{{4}}))?")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_BASED = re.compile(r"(-?)\(?([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?_\{?(\d{1,2}|[a-z]+)\}?")
_BASE_WORD = re.compile(
    r"(-?)([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?) ?\(?(?:in )?base[- ]?(\d{1,2}|[a-z]+)\)?"
)


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
        gap = (
            token.is_spaced
            or (token.kind == "word")
            or (text[-1:].isalpha() and token.kind == "number")
        )
        text += f" {written}" if gap and text and written not in ",:" else written
    return (
        text.replace("{:}", ":")
        .replace("a . m .", "am")
        .replace("p . m .", "pm")
        .replace("{", "")
        .replace("}", "")
    )


def _read_clock(text: str) -> Value | None:
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    half = match[4] or match[3] or ""
    if hour > 24 or minute > 59 or (half in _HALVES and not 1 <= hour <= 24):
        if half:
            raise Malformed("there is no such time")
        return None
    ratio = Ratio((Rational(hour), Rational(minute))) if match[2] and not half else None
    if half in _HALVES:
        minutes = (hour % 12 * 60 + minute + _HALVES[half]) if hour <= 12 else hour * 60 + minute
        return Clock(minutes % 1440, is_certain=True)
    is_certain = hour > 12 or hour == 0
    return Clock((hour * 60 + minute) % 1440, is_certain, ratio)


def _read_date(text: str) -> Value | None:
    if match := _ISO.fullmatch(text):
        year, month, day = map(int, match.groups())
    elif match := _MONTH_FIRST.fullmatch(text):
        month, day, year = _find_month(match[1]), int(match[2]), int(match[3] or 0)
    elif match := _DAY_FIRST.fullmatch(text):
        month, day, year = _find_month(match[2]), int(match[1]), int(match[3] or 0)
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
    has_digit = any(character.isdigit() for character in digits)
    if not 2 <= base <= 36 or not (
        has_digit or (len(digits) > 1 and digits in (digits.upper(), digits.lower()) and base > 10)
    ):
        return None
    whole, _, fraction = digits.partition(".")
    try:
        number = int(sign + whole + fraction, base)
    except ValueError as error:
        raise Malformed(f"a digit of {digits} is not below the base {base}") from error
    value = Fraction(number, base ** len(fraction))
    return Scalar(Rational(value.numerator, value.denominator), base=base)
