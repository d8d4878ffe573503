"""What goes wrong with a request to a server, and whether it is worth another try."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from gapft_harness.core.text import whole

#: Statuses that say nothing of the request itself: it may well succeed later.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
#: Statuses by which servers refuse a prompt beyond their model's context, and what they then say:
#: OpenAI and vLLM "maximum context length", vLLM's engine "maximum model length", SGLang "context
#: length", llama.cpp "context size".
_REFUSING = frozenset({400, 413, 422})
_CONTEXT = re.compile(r"context (length|size|window)|maximum model length", re.IGNORECASE)
#: A server that wants us to wait longer than this, in seconds, is treated as one that is down.
LONGEST_RETRY_AFTER = 900.0


class ServerError(Exception):
    """A request that failed.

    Attributes:
        status: the HTTP status, or None where no whole reply came back.
        what: the failure in a few words, for counting: ``status 503``, ``timeout``, …
        detail: what the server said, shortened; may be empty.
    """

    def __init__(self, what: str, detail: str = "", status: int | None = None) -> None:
        super().__init__(what, detail, status)
        self.what = what
        self.detail = detail
        self.status = status


class PassingError(ServerError):
    """A failure worth another try; ``retry_after`` is the wait in seconds that was asked for."""

    retry_after: float = 0.0


class TooLongError(ServerError):
    """The prompt and the new tokens do not fit the model's context."""


def refused(status: int, headers: Mapping[str, str], detail: str) -> ServerError:
    """The error that an HTTP status from 400 stands for; ``PassingError`` if it may pass."""
    if status in _REFUSING and _CONTEXT.search(detail):
        return TooLongError(f"status {status}", detail, status)
    if status not in _PASSING:
        return ServerError(f"status {status}", detail, status)
    asked = retry_after(headers.get("Retry-After", ""))
    if asked > LONGEST_RETRY_AFTER:
        return ServerError(
            f"status {status}", f"it asks to wait for {asked:.0f} s; {detail}", status
        )
    error = PassingError(f"status {status}", detail, status)
    error.retry_after = asked
    return error


def from_json(body: bytes) -> Any:
    """The JSON value of a reply, its texts ``whole``.

    Raises:
        PassingError: it is none, or its end is missing.
    """
    try:
        return whole(json.loads(body))
    except ValueError as error:
        raise PassingError("no JSON", f"found {body[:80].decode('utf-8', 'replace')!r}") from error


def retry_after(value: str) -> float:
    """Seconds that a ``Retry-After`` header asks for: a number or a date; 0 where it says neither.

    >>> retry_after("2")
    2.0
    >>> retry_after("soon")
    0.0
    """
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def message_of(body: bytes) -> str:
    """What a server's error reply says, in OpenAI's form, in FastAPI's, or as it is."""
    text = body.decode("utf-8", "replace")
    try:
        found = whole(json.loads(text))
    except ValueError:
        return text
    if isinstance(found, dict):
        inner = found.get("error", found.get("detail", found.get("message", found)))
        if isinstance(inner, dict):
            inner = inner.get("message", inner)
        return str(inner)
    return text
