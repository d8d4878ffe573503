"""JSON: reading it with errors for people, and whether a value can be written and read back."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.core.errors import UserError

#: Deeper values cannot be written, read and compared anywhere: Python's own JSON is recursive.
DEEPEST = 400
#: Python spells no longer integer in decimal digits (4,300 of them).
_LONGEST_INTEGER_BITS = 14_284

#: Characters of a value that a message shows.
_LONGEST_SHOWN = 60


def json_fault(value: Any, *, finite: bool = False, deepest: int = DEEPEST) -> str:
    """What keeps a value from being JSON that can be written, read and compared anywhere.

    Args:
        finite: refuse NaN and infinities too, which only Python's JSON has.
        deepest: how often it may be nested.

    Returns:
        The rest of a sentence that begins with what the value is, or ``""``.
    """
    # Not recursive: what is nested too deeply for Python is what this is to find.
    open_values: list[Iterator[Any]] = [iter((value,))]
    while open_values:
        for item in open_values[-1]:
            if isinstance(item, dict | list | tuple):
                if len(open_values) > deepest:
                    return f"is nested more than {deepest} times"
                if isinstance(item, dict) and (fault := _key_fault(item)):
                    return fault
                open_values.append(iter(item.values() if isinstance(item, dict) else item))
                break
            if fault := _leaf_fault(item, finite):
                return fault
        else:
            open_values.pop()
    return ""


def _key_fault(item: dict[Any, Any]) -> str:
    for key in item:
        if not isinstance(key, str):
            return f"has a key that is no text ({type(key).__name__})"
        if fault := _leaf_fault(key, finite=False):
            return fault
    return ""


def _leaf_fault(item: Any, finite: bool) -> str:
    if isinstance(item, str):
        return "" if _is_whole(item) else "holds half of a surrogate pair, which is no text"
    if isinstance(item, int):
        long = item.bit_length() > _LONGEST_INTEGER_BITS
        return "holds an integer of more than 4,300 digits" if long else ""
    if isinstance(item, float):
        return f"holds {item}, which JSON has not" if finite and not math.isfinite(item) else ""
    return "" if item is None else f"holds {type(item).__name__}, which is no JSON value"


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def changes(before: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted key of each place at which two values differ, with what stands there.

    What an object lacks is null there.
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in sorted({*before, *now}):
            yield from changes(before.get(name), now.get(name), f"{key}.{name}".strip("."))
    elif before != now:
        yield key, before, now


def describe_change(key: str, before: Any, now: Any) -> str:
    """Write a changed value as ``search.k 4 → 8``; of long values the part that differs.

    Args:
        key: what changed; may be empty.
        before: a JSON value; None is shown as ``not set``.
        now: another one.
    """
    a, b = _shown(before), _shown(now)
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


class _Twice(ValueError):
    """A key stands twice in an object: readers of JSON do not agree which value counts."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise _Twice(f"the key {twice!r:.80} stands twice")
    return found


def parse(text: str, place: str) -> Any:
    """Reads JSON.

    Raises:
        UserError: it is malformed, or a key stands twice; the message begins with ``place``.
    """
    text = text.rstrip()  # a line's end is no place for a fault
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except _Twice as error:
        raise UserError(f"{place}: {error}; expected each key once in an object") from error
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text.lstrip() else ""
        raise UserError(
            f"{place}{line}: malformed JSON at column {error.colno} ({error.msg}); "
            f"{_guess(text, error.pos)}"
        ) from error
    except RecursionError as error:
        raise UserError(f"{place}: malformed JSON: nested too deeply") from error
    except ValueError as error:  # an integer that Python does not read
        raise UserError(f"{place}: malformed JSON: {error}") from error


def parse_object(text: str, place: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        text: the JSON.
        place: what messages begin with, such as a file and a line.

    Raises:
        UserError: it is malformed, or another value.
    """
    return as_object(parse(text, place), place)


def as_object(value: Any, place: str) -> dict[str, Any]:
    """Gives a JSON object back.

    Raises:
        UserError: it is another value; the message begins with ``place``.
    """
    if not isinstance(value, dict):
        raise UserError(f"{place}: found {type(value).__name__}, expected a JSON object")
    return value


def _guess(text: str, wrong: int) -> str:
    """What seems to have happened to malformed JSON, and what to do."""
    start = text.strip()
    if start in ("{", "["):
        return "is it one record over several lines? expected one object a line, or a JSON list"
    if start.startswith("{'"):
        return "is it Python? expected JSON, with double quotes: json.dumps(record)"
    if text[wrong:].strip() == ",":
        return "take the comma at the line's end away"
    if not start.startswith(("{", "[")):
        return (
            "is it CSV or plain text? expected one JSON object a line (dataset_path: csv reads CSV)"
        )
    return "is the line torn, or the file cut short?"
