"""Read the replies of an OpenAI-compatible server: text, finish reason, and token ids if present.

Token ids are those of vLLM's ``return_token_ids`` (as in vllm 0.32.0): ``token_ids`` of a choice
has all generated ids, including those of the end and of the stop string; ``stop_reason`` is the
stop string, the id that ended the text, or null for the model's end of sequence.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.text import whole
from gapft_harness.lm_eval_bridge.samplers.endings import ids_of_text

#: Statuses of temporary failures: the same request may succeed later.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
#: Statuses of a prompt beyond the model's context, and the texts in these errors: OpenAI and vLLM
#: "maximum context length", vLLM's engine "maximum model length", SGLang "context length",
#: llama.cpp "context size".
_REFUSING = frozenset({400, 413, 422})
_CONTEXT = re.compile(r"context (length|size|window)|maximum model length", re.IGNORECASE)
#: If a server asks to wait longer than this (seconds), the request fails.
LONGEST_RETRY_AFTER = 900.0


class ServerError(Exception):
    """A request that failed.

    Attributes:
        status: the HTTP status; None without a complete reply.
        summary: the failure in a few words, for counting: ``status 503``, ``timeout``, …
        detail: the server's message, shortened; may be empty.
    """

    def __init__(self, what: str, detail: str = "", status: int | None = None) -> None:
        super().__init__(what, detail, status)
        self.what = what
        self.detail = detail
        self.status = status


class PassingError(ServerError):
    """A failure worth a retry; ``retry_after`` is the wait in seconds that the server asked for."""

    retry_after: float = 0.0


class TooLongError(ServerError):
    """The prompt with the new tokens does not fit the model's context."""


def refused(status: int, headers: Mapping[str, str], detail: str) -> ServerError:
    """Build the error for an HTTP status from 400; ``TemporaryError`` if a retry may succeed."""
    if status in _REFUSING and _CONTEXT.search(detail):
        return TooLongError(f"status {status}", detail, status)
    if status not in _PASSING:
        return ServerError(f"status {status}", detail, status)
    asked = retry_after(headers.get("Retry-After", ""))
    if asked > LONGEST_RETRY_AFTER:
        return ServerError(f"status {status}", f"it asks to wait {asked:.0f} s; {detail}", status)
    error = PassingError(f"status {status}", detail, status)
    error.retry_after = asked
    return error


def from_json(body: bytes) -> Any:
    """Parse a reply as JSON; lone surrogates in its texts are replaced (``core.text.whole``).

    Raises:
        TemporaryError: it is not JSON, or it is truncated.
    """
    try:
        return whole(json.loads(body))
    except ValueError as error:
        raise PassingError("no JSON", f"found {body[:80].decode('utf-8', 'replace')!r}") from error


def retry_after(value: str) -> float:
    """Parse a ``Retry-After`` header (a number or a date) to seconds; 0 if it is neither.

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
    """Read the message of an error reply in OpenAI's form, in FastAPI's, or as plain text."""
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


_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ServerReply:
    """One generated text.

    Attributes:
        text: the text without its stop string.
        finish_reason: ``stop``, ``length`` or ``unknown``.
        prompt_ids: the prompt's ids on the server; None if it does not return them.
        token_ids: all generated ids, see above; None if the server does not return them.
        stop: the stop string that ended the text; None for any other end.
    """

    text: str
    finish_reason: str
    prompt_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    stop: str | None

    def ids_of_text(self, decode: Callable[[Sequence[int]], str] | None) -> tuple[int, ...] | None:
        """Return the ids of ``text``, or None if they cannot be found exactly.

        Args:
            decode: returns the text of ids without special tokens; needed after a stop string.
        """
        if self.token_ids is None:
            return None
        if self.stop is not None:
            return tuple(ids_of_text(self.token_ids, self.text, decode)) if decode else None
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids


def read_reply(reply: bytes) -> ServerReply:
    """Read the reply to a completion or chat completion with one choice.

    Raises:
        TemporaryError: it is truncated or malformed, or the server aborted the generation.
        ServerError: the server separates a part of the generated text.
    """
    body = from_json(reply)
    try:
        [choice] = body["choices"]
        message = choice.get("message")
        text = choice["text"] if message is None else message.get("content")
        finish = choice.get("finish_reason")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise PassingError("no OpenAI reply", f"found {str(body)[:80]!r}") from error
    if message is not None and any(message.get(key) for key in _REASONING):
        raise ServerError(
            "reasoning apart",
            "the server separates reasoning from the text; start it without a reasoning parser",
        )
    if finish in ("abort", "error"):
        raise PassingError("aborted", f"finish_reason {finish!r}")
    if text is not None and not isinstance(text, str):
        raise PassingError("no OpenAI reply", f"its text is {str(text)[:80]!r}")
    # Ids are exact only if the server also returns the reason for the end.
    exact = "stop_reason" in choice
    stop = choice.get("stop_reason")
    return ServerReply(
        text or "",
        finish if finish in ("stop", "length") else "unknown",
        _ids(choice.get("prompt_token_ids", body.get("prompt_token_ids"))),
        _ids(choice.get("token_ids")) if exact else None,
        stop if isinstance(stop, str) else None,
    )


def _ids(ids: Any) -> tuple[int, ...] | None:
    if isinstance(ids, list) and all(type(number) is int for number in ids):
        return tuple(ids)
    return None
