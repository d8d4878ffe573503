"""Read JSON with errors for users, and check that a value can be written and read back."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.text import read_lines

#: Values nested deeper cannot be written and read everywhere: Python's json module is recursive.
MAX_DEPTH = 400
#: Python refuses to convert longer integers to decimal (its limit is 4,300 digits).
_MAX_INTEGER_BITS = 14_284

#: Characters of a value that a message shows.
_LONGEST_SHOWN = 60


def find_json_fault(
    value: Any, *, finite: bool = False, max_depth: int = MAX_DEPTH, long_integers: bool = False
) -> str:
    """Find the first reason why a value is not JSON that any reader can write, read and compare.

    Args:
        value: any Python value.
        finite: refuse NaN and infinities too, which only Python's json module accepts.
        max_depth: the deepest nesting allowed.
        long_integers: allow integers of any length, also as the ``Decimal`` that a reader uses for
            integers beyond Python's limit.

    Returns:
        The fault as a predicate (``holds …``) that follows the value's name, or ``""``.
    """
    # Not recursive, because it must detect values that are nested too deeply for recursion.
    open_values: list[Iterator[Any]] = [iter((value,))]
    while open_values:
        for item in open_values[-1]:
            if isinstance(item, dict | list | tuple):
                if len(open_values) > max_depth:
                    return f"is nested more than {max_depth} times"
                if isinstance(item, dict) and (fault := _find_key_fault(item)):
                    return fault
                open_values.append(iter(item.values() if isinstance(item, dict) else item))
                break
            if long_integers and isinstance(item, int | Decimal):
                continue
            if fault := _find_leaf_fault(item, finite):
                return fault
        else:
            open_values.pop()
    return ""


def _find_key_fault(item: dict[Any, Any]) -> str:
    for key in item:
        if not isinstance(key, str):
            return f"has a key of type {type(key).__name__}; expected text"
        if fault := _find_leaf_fault(key, finite=False):
            return fault
    return ""


def _find_leaf_fault(item: Any, finite: bool) -> str:
    if isinstance(item, str):
        return "" if _is_encodable(item) else "holds a lone surrogate, which UTF-8 cannot encode"
    if isinstance(item, int):
        long = item.bit_length() > _MAX_INTEGER_BITS
        return "holds an integer of more than 4,300 digits" if long else ""
    if isinstance(item, float):
        return f"holds {item}, not a JSON number" if finite and not math.isfinite(item) else ""
    return "" if item is None else f"holds {type(item).__name__}, not a JSON value"


def _is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def diff_values(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted key, old value, new value) for each place where two JSON values differ.

    A key that is missing from one of the objects has the value None there.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from diff_values(old.get(name), new.get(name), f"{key}.{name}".strip("."))
    elif old != new:
        yield key, old, new


def describe_change(key: str, before: Any, now: Any) -> str:
    """Write a changed value as ``search.k 4 → 8``; of long values the part that differs.

    Args:
        key: what changed; may be empty.
        before: a JSON value; None is shown as ``not set``.
        now: another one.
    """
    a = _shown(before)
    b = _shown(now)
    start = 0
    if max(len(a), len(b)) > _LONGEST_SHOWN:
        pairs = enumerate(zip(a, b, strict=False))
        alike = next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))
        start = max(0, alike - _LONGEST_SHOWN // 3)
    return f"{key} {_part(a, start)} → {_part(b, start)}".strip()


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, str) and re.fullmatch(r"[^\s'\"]+", value):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _part(text: str, start: int) -> str:
    if len(text) <= _LONGEST_SHOWN:
        return text
    end = start + _LONGEST_SHOWN
    return f"{'…' * (start > 0)}{text[start:end]}{'…' * (len(text) > end)}"


class _RepeatedKey(ValueError):
    """An object has a key twice; JSON readers do not agree which value counts."""


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise _RepeatedKey(f"the key {repeated!r:.80} occurs twice")
    return value


_decode = json.JSONDecoder(object_pairs_hook=_build_object).decode


def parse_json(text: str, place: str) -> Any:
    """Parse JSON.

    Args:
        text: the JSON.
        place: the source of the text, such as a file and a line; messages begin with it.

    Raises:
        UserError: the text is malformed, or an object has a key twice.
    """
    text = text.rstrip()  # so that no error points behind the line's end
    try:
        return _decode(text)
    except _RepeatedKey as error:
        raise UserError(f"{place}: {error}; expected each key once in an object") from error
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text.lstrip() else ""
        raise UserError(
            f"{place}{line}: malformed JSON at column {error.colno} ({error.msg})"
        ) from error
    except RecursionError as error:
        raise UserError(f"{place}: malformed JSON: nested too deeply") from error
    except ValueError as error:  # an integer that Python does not read
        raise UserError(f"{place}: malformed JSON: {error}") from error


def parse_object(text: str, place: str) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        text: the JSON.
        place: the source of the text, such as a file and a line; messages begin with it.

    Raises:
        UserError: the text is malformed, or not an object.
    """
    return require_object(parse_json(text, place), place)


def require_object(value: Any, place: str) -> dict[str, Any]:
    """Return a value if it is a JSON object.

    Raises:
        UserError: it is not; the message begins with ``place``.
    """
    if not isinstance(value, dict):
        raise UserError(f"{place}: found {type(value).__name__}, expected a JSON object")
    return value


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield (line from 1, object, place) of JSON lines, plain or gzipped, one in memory at a time.

    Raises:
        UserError: the file cannot be read, is empty, or a line is not a JSON object.
    """
    is_empty = True
    for number, text in read_lines(path):
        if text.strip():
            is_empty = False
            place = f"{path}, line {number}"
            yield number, parse_object(text, place), place
    if is_empty:
        raise UserError(f"{path}: is empty; expected one JSON object per line")
