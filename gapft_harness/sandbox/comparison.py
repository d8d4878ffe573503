"""Compares what a program gave with what was expected. Runs outside the sandbox, on bytes.

What a program gave is untrusted: nothing here may take long, recurse deeply or raise on it.
Whatever its shape, it is read in linear time: each pattern is possessive, so that it gives nothing
back that it has read, and tokens are taken one by one.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import json_fault
from gapft_harness.sandbox.values import DEEPEST, equal, parse, parse_arguments

_SPACE = " \t\n\r\v\f"
_TOKEN = re.compile(f"[^{_SPACE}]++")
_PYTHONS_TOKEN = re.compile(r"\S++")  # as str.split() has them
_NUMBER = re.compile(
    r"[+-]?+(?:(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:e[+-]?+[0-9]++)?+|inf(?:inity)?+)",
    re.IGNORECASE | re.ASCII,
)


def same_output(given: bytes, expected: str, *, lcb: bool = False) -> str:
    """Compares standard output.

    Both are stripped, split into lines, and each line stripped. Two lines agree if they are equal
    or if their tokens are equal decimals, exactly: there is no tolerance.

    Decimals are written in ASCII's digits, with its white space between them. LiveCodeBench takes
    all that Python takes: other scripts' digits, ``1_2``, and control characters as white space.

    Args:
        given: the bytes that were printed.
        expected: the expected text.
        lcb: as LiveCodeBench's own checker does it.

    Returns:
        Empty if they agree, else the first difference, in a line.
    """
    text = given.decode("utf-8", "surrogateescape")
    if text == expected:
        return ""
    space = None if lcb else _SPACE  # None is all that Python knows
    text, expected = text.strip(space), expected.strip(space)
    if (lines := text.count("\n") + 1) != (wanted := expected.count("\n") + 1):
        return f"{lines} lines, expected {wanted}"
    ours, theirs = ([line.strip(space) for line in s.split("\n")] for s in (text, expected))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True), 1):
        if one != other and not _same_decimals(one, other, lcb):
            return f"line {number}: {_short(one)}, expected {_short(other)}"
    return ""


def same_value(given: Any, expected: Any) -> str:
    """Compares a function's value, both as JSON values, by Python's equality.

    Returns:
        Empty if they agree, else the difference, in a line.
    """
    if equal(given, expected):
        return ""
    try:
        return f"{_short(json.dumps(given))}, expected {_short(json.dumps(expected))}"
    except (RecursionError, ValueError):
        return "another value, nested too deeply or with a number too long to show"


def expected_value(text: str) -> Any:
    """A function test's expected value.

    Raises:
        UserError: it is no JSON, or holds NaN, which equals nothing, or an infinity.
    """
    try:
        return _finite(parse(text), text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"a function test's expected value must be JSON; found {_short(text)} ({error})"
        ) from error


def check_arguments(text: str) -> None:
    """Whether a function test's input can be a call at all.

    Raises:
        UserError: a line of it is no JSON, or holds NaN or an infinity.
    """
    try:
        _finite(parse_arguments(text), text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"a function test's input must be one JSON value a line; found {_short(text)} ({error})"
        ) from error


def _finite(value: Any, text: str) -> Any:
    named = "NaN" in text or "Infinity" in text  # Python's reader takes them
    if named and (fault := json_fault(value, finite=True, deepest=DEEPEST + 1)):
        raise ValueError(f"it {fault}")
    return value


def _same_decimals(one: str, other: str, lcb: bool) -> bool:
    token = _PYTHONS_TOKEN if lcb else _TOKEN
    pairs = zip_longest(token.finditer(one), token.finditer(other))
    try:
        # Decimals, not integers: those of n digits take time in proportion to n * n.
        return all(
            ours is not None
            and theirs is not None
            and (lcb or (_NUMBER.fullmatch(ours[0]) and _NUMBER.fullmatch(theirs[0])))
            and Decimal(ours[0]) == Decimal(theirs[0])
            for ours, theirs in pairs
        )
    except (ArithmeticError, ValueError):  # no number, or a signalling NaN
        return False


def _short(text: str, length: int = 60) -> str:
    return repr(text if len(text) <= length else f"{text[:length]}…")
