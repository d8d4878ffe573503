"""Compare a program's output with the expected output, outside the sandbox.

The output is untrusted: no comparison may take long, recurse deeply or raise because of it. Any
output is read in linear time: all patterns are possessive, so they never backtrack, and tokens are
read one by one.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.sandbox.values import are_equal, call_deeply, parse_arguments, parse_json

_SPACE = " \t\n\r\v\f"
_TOKEN = re.compile(f"[^{_SPACE}]++")
_NUMBER = re.compile(
    r"[+-]?+(?:(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:e[+-]?+[0-9]++)?+|inf(?:inity)?+)",
    re.IGNORECASE | re.ASCII,
)


def compare_outputs(output: bytes, expected: str) -> str:
    """Compare standard output with the expected text.

    Both are stripped and split into lines, and each line is stripped. Two lines agree if they are
    equal, or if their tokens are exactly equal decimals; there is no tolerance.

    Decimals consist of ASCII digits and are separated by ASCII white space. Python itself accepts
    more: digits of other scripts, ``1_2``, and control characters as white space.

    Args:
        output: the printed bytes.
        expected: the expected text.

    Returns:
        Empty if they agree, else the first difference in one line.
    """
    text = output.decode("utf-8", "surrogateescape")
    if text == expected:
        return ""
    text, expected = text.strip(_SPACE), expected.strip(_SPACE)
    if (line_count := text.count("\n") + 1) != (expected_count := expected.count("\n") + 1):
        return f"{line_count} lines, expected {expected_count}"
    output_lines, expected_lines = (
        [line.strip(_SPACE) for line in s.split("\n")] for s in (text, expected)
    )
    for number, (output_line, expected_line) in enumerate(
        zip(output_lines, expected_lines, strict=True), 1
    ):
        if output_line != expected_line and not _are_equal_decimals(output_line, expected_line):
            return f"line {number}: {_shorten(output_line)}, expected {_shorten(expected_line)}"
    return ""


def compare_values(value: Any, expected: Any) -> str:
    """Compare two JSON values, a function's and the expected one, by Python's equality.

    Returns:
        Empty if they agree, else the difference in one line.
    """
    if are_equal(value, expected):
        return ""
    try:
        texts = [_shorten(call_deeply(json.dumps, shown)) for shown in (value, expected)]
    except (ValueError, TypeError):  # a long integer, also as a ``Decimal``
        return "a different value, with a number too long to show"
    return f"{texts[0]}, expected {texts[1]}"


def parse_expected_value(text: str) -> Any:
    """Parse a function test's expected value.

    Raises:
        UserError: the text is not JSON, or contains an infinity or NaN (NaN equals nothing).
    """
    try:
        return parse_json(text, constants=False)
    except ValueError as error:
        raise UserError(
            f"a function test's expected value must be JSON; found {_shorten(text)} ({error})"
        ) from error


def parse_test_arguments(text: str) -> list[Any]:
    """Parse a function test's input, which the sandbox parses again.

    Raises:
        UserError: a line is not JSON, or contains NaN or an infinity.
    """
    try:
        return parse_arguments(text, constants=False)
    except ValueError as error:
        raise UserError(
            "a function test's input must be one JSON value per line; found "
            f"{_shorten(text)} ({error})"
        ) from error


def _are_equal_decimals(left: str, right: str) -> bool:
    pairs = zip_longest(_TOKEN.finditer(left), _TOKEN.finditer(right))
    try:
        # Decimal, because parsing an int of n digits takes time proportional to n * n.
        return all(
            left_token is not None
            and right_token is not None
            and _NUMBER.fullmatch(left_token[0])
            and _NUMBER.fullmatch(right_token[0])
            and Decimal(left_token[0]) == Decimal(right_token[0])
            for left_token, right_token in pairs
        )
    except (ArithmeticError, ValueError):  # not a number, or a signaling NaN
        return False


def _shorten(text: str, length: int = 60) -> str:
    return repr(text if len(text) <= length else f"{text[:length]}…")
