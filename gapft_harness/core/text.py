"""Text that can be written as UTF-8: JSON may hold half of a surrogate pair, which no file can."""

from __future__ import annotations

from typing import TypeVar

Json = TypeVar("Json")


def whole_text(text: str) -> str:
    r"""A text with U+FFFD in the place of every lone surrogate.

    >>> whole_text("hi \ud83d") == "hi \ufffd"
    True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole(value: Json) -> Json:
    """A JSON value whose texts are all as ``whole_text`` makes them."""
    if isinstance(value, str):
        return whole_text(value)  # type: ignore[return-value]
    if isinstance(value, list):
        return [whole(item) for item in value]  # type: ignore[return-value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}  # type: ignore[return-value]
    return value
