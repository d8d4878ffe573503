"""Encode a function's arguments and value as JSON that preserves Python's equality."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

#: Maximum nesting of a value.
MAX_VALUE_DEPTH = 10_000
#: Maximum length of a text that is too deeply nested for the standard parser; the other is slow.
_MAX_DEEP_LENGTH = 1 << 18

_PLAIN = frozenset({int, float, str, bool, type(None)})
_TOKEN = re.compile(r'[ \t\n\r]*+("(?:[^"\\]++|\\.)*+"|[][{},:]|[^][{},:"\s]++)')


def parse_deep_json(text: str | bytes) -> Any:
    """Parse JSON that is nested up to ``MAX_VALUE_DEPTH``, whatever the caller's stack depth.

    An integer with more digits than Python converts (4,300 unless the limit was changed) becomes an
    equal ``Decimal``. Decimals are parsed and compared in linear time, integers in quadratic time.

    Raises:
        ValueError: the text is not JSON.
        RecursionError: the text is too deeply nested, or deeply nested and too long.
    """
    try:
        try:
            return json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise
        except ValueError:  # an integer beyond Python's limit
            return json.loads(text, parse_int=_parse_integer)
    except RecursionError:
        if len(text) > _MAX_DEEP_LENGTH:
            raise
        return _parse_iteratively(text if isinstance(text, str) else text.decode())


def _parse_integer(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def _parse_iteratively(text: str) -> Any:
    """Parse like ``json.loads``, but without recursion; about twelve times slower."""
    root: list[Any] = []
    open_values: list[Any] = [root]  # the lists and dictionaries that are open
    keys: list[str] = []  # for each open dictionary, the key whose value is missing
    expected, position = "value", 0
    while match := _TOKEN.match(text, position):
        token, position = match[1], match.end()
        inner = open_values[-1]
        if expected in ("value", "value or end") and token not in ("]", "}", ",", ":"):
            value = [] if token == "[" else {} if token == "{" else _parse_token(token)
            if isinstance(inner, dict):
                inner[keys.pop()] = value
            else:
                inner.append(value)
            expected = "end"
            if token in ("[", "{"):
                open_values.append(value)
                expected = "value or end" if token == "[" else "key or end"
            if len(open_values) > MAX_VALUE_DEPTH + 2:  # the root, and a report around the value
                raise RecursionError(f"JSON nested more than {MAX_VALUE_DEPTH} times")
        elif expected in ("key", "key or end") and token[0] == '"':
            keys.append(json.loads(token))
            expected = "colon"
        elif expected == "colon" and token == ":":
            expected = "value"
        elif inner is not root and expected == "end" and token == ",":
            expected = "key" if isinstance(inner, dict) else "value"
        elif (
            inner is not root
            and expected.endswith("end")
            and token == ("}" if isinstance(inner, dict) else "]")
        ):
            open_values.pop()
            expected = "end"
        else:
            raise ValueError(f"expected a {expected}, found {token[:20]!r}")
    if rest := text[position:].strip(" \t\n\r"):
        raise ValueError(f"found {rest[:20]!r}")
    if len(open_values) > 1 or not root:
        raise ValueError("the text ends too early")
    return root[0]


def _parse_token(token: str) -> Any:
    return json.loads(token, parse_int=_parse_integer)


def are_equal(left: Any, right: Any) -> bool:
    """Check whether two JSON values are equal by Python's ``==``, at any nesting depth."""
    try:
        return bool(left == right)
    except RecursionError:
        pass
    pairs = [(left, right)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
            pairs += zip(left, right, strict=True)
        elif isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
            pairs += [(value, right[key]) for key, value in left.items()]
        elif isinstance(left, list | dict) or left != right:
            return False
    return True


def parse_arguments(text: str) -> list[Any]:
    """Parse a call's arguments, one JSON value per line; an empty text has none.

    Raises:
        ValueError: a line is not JSON.
        RecursionError: a line is too deeply nested, or deeply nested and too long.
    """
    text = text.strip()
    return [parse_deep_json(line) for line in text.split("\n")] if text else []


def encode_value(value: Any, depth: int = 0) -> str:
    """Encode a value as JSON that equals the expected JSON exactly if the value equals it.

    A tuple becomes a list. A value that JSON cannot represent becomes an object that equals no
    list, number or text.

    Args:
        value: the function's return value; its ``__eq__`` is never called.
        depth: the number of lists and dictionaries around the value.

    Raises:
        RecursionError: the value is nested more than ``MAX_VALUE_DEPTH`` times, or contains itself.
    """
    if depth > MAX_VALUE_DEPTH:
        raise RecursionError(f"a value nested more than {MAX_VALUE_DEPTH} times")
    kind = type(value)
    if kind in _PLAIN:
        return _dump(value)
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)
        if set(map(type, items)) <= _PLAIN:
            return _dump(items)
        return f"[{', '.join([encode_value(item, depth + 1) for item in items])}]"
    if isinstance(value, dict):
        if all(type(key) is str for key in value):
            fields = [
                f"{_dump(key)}: {encode_value(item, depth + 1)}" for key, item in value.items()
            ]
            return f"{{{', '.join(fields)}}}"
        return _format_not_json("a dictionary with keys that are no strings")
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return _dump(plain(value))
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        item = value.tolist()
        if not isinstance(item, list):  # a scalar; an array does not equal a list
            return encode_value(item, depth + 1)
    return _format_not_json(kind.__name__)


_dump = json.JSONEncoder().encode


def _format_not_json(description: str) -> str:
    return _dump({"\0not JSON": description})
