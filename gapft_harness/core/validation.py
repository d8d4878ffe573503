"""Describe what pydantic finds wrong: the key, what was expected and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any


def describe_fault(fault: Mapping[str, Any], location: Sequence[int | str]) -> str:
    """Describe one fault.

    Args:
        fault: an entry of ``ValidationError.errors()``.
        location: the parts of the value's key; none for the value itself.
    """
    key = f"key {'.'.join(map(str, location))!r}: " if location else ""
    return f"{key}{describe_expected(fault)}; found {short(fault['input'])}"


def describe_expected(fault: Mapping[str, Any]) -> str:
    """Return pydantic's message on a fault in our form, such as ``expected a valid integer``."""
    message = str(fault["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should be", "expected", 1)
    return f"{message[:1].lower()}{message[1:]}"
