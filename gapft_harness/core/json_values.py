"""Whether a value can be written as JSON and read back: golds, and what plugins say of things."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

#: Deeper values cannot be written, read and compared anywhere: Python's own JSON is recursive.
DEEPEST = 400
#: Python spells no longer integer in decimal digits (4,300 of them).
_LONGEST_INTEGER_BITS = 14_284


def json_fault(value: Any, *, finite: bool = False, deepest: int = DEEPEST) -> str:
    """What keeps a value from being JSON that can be written, read and compared anywhere.

    Args:
        value: anything.
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
