"""Read and write a function's arguments and value as JSON that preserves Python's equality."""

from __future__ import annotations

import itertools
import json
import operator
import re
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

#: Maximum nesting of an argument or a value.
MAX_DEPTH = 1_000
#: Nested Python calls that a function on such a value needs, with some reserve.
_CALLS = 4 * MAX_DEPTH
_LARGEST_LIMIT = (1 << 31) - 1  # a C int

_PLAIN = frozenset({int, float, str, bool, type(None)})
#: Everything but brackets. A string needs no end, so that malformed text is read only once too.
_NO_BRACKETS = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"?|[^][{}"]++)++', re.DOTALL)
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}

_Value = TypeVar("_Value")
_limit_lock = threading.Lock()


def call_deeply(function: Callable[..., _Value], *arguments: object, **options: object) -> _Value:
    """Call a function that recurses through a value, whatever the caller's depth and limit.

    Args:
        function: a function that recurses at most ``MAX_DEPTH`` levels deep.
        arguments: its arguments.
        options: its keyword arguments.
    """
    with _limit_lock:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(min(limit + _CALLS, _LARGEST_LIMIT))
        try:
            return function(*arguments, **options)
        finally:
            sys.setrecursionlimit(limit)


def parse_json(text: str | bytes, *, constants: bool = True, max_depth: int = MAX_DEPTH) -> Any:
    """Parse JSON whose nesting is limited.

    An integer with more digits than Python converts (4,300 unless the limit was changed) becomes an
    equal ``Decimal``. Decimals are parsed and compared in linear time, integers in quadratic time.

    Args:
        text: the JSON.
        constants: whether NaN and infinities are permitted, which only Python's parser reads.
        max_depth: how deeply lists and objects may be nested.

    Raises:
        ValueError: the text is not JSON, or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode()
    brackets = text.count("[") + text.count("{")
    if brackets > max_depth and _measure_depth(text) > max_depth:
        raise ValueError(f"JSON nested more than {max_depth} times")
    options = {} if constants else {"parse_constant": _refuse_constant}
    try:
        return call_deeply(json.loads, text, **options)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer beyond Python's limit, or a refused constant
        return call_deeply(json.loads, text, parse_int=_parse_integer, **options)


def _measure_depth(text: str) -> int:
    """Measure how deeply the brackets of JSON are nested."""
    brackets = _NO_BRACKETS.sub("", text)
    return max(itertools.accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _parse_integer(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def are_equal(left: Any, right: Any) -> bool:
    """Check whether two values of ``parse_json`` are equal by Python's ``==``."""
    return bool(call_deeply(operator.eq, left, right))


def parse_arguments(text: str, *, constants: bool = True) -> list[Any]:
    """Parse a call's arguments, one JSON value per line; an empty text has none.

    Args:
        text: the lines.
        constants: see ``parse_json``.

    Raises:
        ValueError: a line is not JSON, or nested too deeply.
    """
    text = text.strip()
    return [parse_json(line, constants=constants) for line in text.split("\n")] if text else []


def encode_value(value: Any, depth: int = 0) -> str:
    """Encode a value as JSON that equals the expected JSON exactly if the value equals it.

    A tuple becomes a list. A value that JSON cannot represent becomes an object that equals no
    list, number or text. Call it with ``call_deeply``.

    Args:
        value: the function's return value; its ``__eq__`` is never called.
        depth: the number of lists and dictionaries around the value.

    Raises:
        RecursionError: the value is nested more than ``MAX_DEPTH`` times, or contains itself.
    """
    kind = type(value)
    if kind in _PLAIN:
        return _dump(value)
    if depth >= MAX_DEPTH:
        raise RecursionError(f"a value nested more than {MAX_DEPTH} times")
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
