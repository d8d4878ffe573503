"""Read the replies of an OpenAI-compatible server: text, finish reason, and token ids if present.

Token ids are those of vLLM's ``return_token_ids`` (as in vllm 0.32.0): ``token_ids`` of a choice
has all generated ids, including those of the end and of the stop string; ``stop_reason`` is the
stop string, the id that ended the text, or null for the model's end of sequence.

A chat server with a reasoning parser returns the model's reasoning apart from ``content``, as
``reasoning_content`` or ``reasoning``; ``content`` is null if generation ended before the answer.
Token ids and ``usage.completion_tokens`` include the reasoning and its tags.
"""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.text import replace_surrogates
from gapft_harness.lm_eval_bridge.samplers.endings import ids_of_text

#: Statuses of temporary failures: the same request may succeed later.
_TEMPORARY_STATUSES = frozenset(
    {408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529}
)
#: Statuses of a prompt beyond the model's context, and the texts in these errors: OpenAI and vLLM
#: "maximum context length", vLLM's engine "maximum model length", SGLang "context length",
#: llama.cpp "context size".
_REJECTED_STATUSES = frozenset({400, 413, 422})
_CONTEXT_MESSAGE = re.compile(r"context (length|size|window)|maximum model length", re.IGNORECASE)
#: If a server asks to wait longer than this (seconds), the request fails.
LONGEST_RETRY_AFTER = 900.0


class ServerError(Exception):
    """A request that failed.

    Attributes:
        status: the HTTP status; None without a complete reply.
        summary: the failure in a few words, for counting: ``status 503``, ``timeout``, …
        detail: the server's message, shortened; may be empty.
    """

    def __init__(self, summary: str, detail: str = "", status: int | None = None) -> None:
        super().__init__(summary, detail, status)
        self.summary = summary
        self.detail = detail
        self.status = status


class TemporaryError(ServerError):
    """A failure worth a retry; ``retry_after`` is the wait in seconds that the server asked for."""

    retry_after: float = 0.0


class TooLongError(ServerError):
    """The prompt with the new tokens does not fit the model's context."""


def status_error(status: int, headers: Mapping[str, str], detail: str) -> ServerError:
    """Build the error for an HTTP status from 400; ``TemporaryError`` if a retry may succeed."""
    if status in _REJECTED_STATUSES and _CONTEXT_MESSAGE.search(detail):
        return TooLongError(f"status {status}", detail, status)
    if status not in _TEMPORARY_STATUSES:
        return ServerError(f"status {status}", detail, status)
    wait_s = parse_retry_after(headers.get("Retry-After", ""))
    if wait_s > LONGEST_RETRY_AFTER:
        return ServerError(f"status {status}", f"it asks to wait {wait_s:.0f} s; {detail}", status)
    error = TemporaryError(f"status {status}", detail, status)
    error.retry_after = wait_s
    return error


def parse_json(body: bytes) -> Any:
    """Parse a reply as JSON; lone surrogates in its texts are replaced (``core.text.whole``).

    Raises:
        TemporaryError: it is not JSON, or it is truncated.
    """
    try:
        return replace_surrogates(json.loads(body))
    except ValueError as error:
        raise TemporaryError(
            "no JSON", f"found {body[:80].decode('utf-8', 'replace')!r}"
        ) from error


def parse_retry_after(value: str) -> float:
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


def read_error_message(body: bytes) -> str:
    """Read the message of an error reply in OpenAI's form, in FastAPI's, or as plain text."""
    text = body.decode("utf-8", "replace")
    try:
        reply = replace_surrogates(json.loads(text))
    except ValueError:
        return text
    if isinstance(reply, dict):
        inner = reply.get("error", reply.get("detail", reply.get("message", reply)))
        if isinstance(inner, dict):
            inner = inner.get("message", inner)
        return str(inner)
    return text


#: The names of the message's field with the reasoning: vLLM's newer name is the second.
_REASONING_FIELDS = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ServerReply:
    """One generated text.

    Attributes:
        text: the text without its stop string.
        finish_reason: ``stop``, ``length`` or ``unknown``.
        prompt_ids: the prompt's ids on the server; None if it does not return them.
        token_ids: all generated ids, see above; None if the server does not return them.
        stop: the stop string that ended the text; None for any other end.
        reasoning: the reasoning that the server returned apart from ``text``; else empty.
    """

    text: str
    finish_reason: str
    prompt_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    stop: str | None
    reasoning: str = ""

    def find_text_ids(
        self, decode: Callable[[Sequence[int]], str] | None
    ) -> tuple[int, ...] | None:
        """Return the ids of ``text``, or None if they cannot be found exactly.

        Those of a separate reasoning, with its tags, come first.

        Args:
            decode: returns the text of ids without special tokens; needed after a stop string.
        """
        if self.token_ids is None:
            return None
        if self.stop is not None:
            if decode is None:
                return None
            text = self.text
            if self.reasoning:
                full_text = decode(self.token_ids)
                end = full_text.rfind(text + self.stop)
                if end < 0:
                    return None
                text = full_text[: end + len(text)]
            return tuple(ids_of_text(self.token_ids, text, decode))
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids


def read_reply(reply: bytes) -> ServerReply:
    """Read the reply to a completion or chat completion with one choice.

    Raises:
        TemporaryError: it is truncated or malformed, or the server aborted the generation.
    """
    body = parse_json(reply)
    try:
        [choice] = body["choices"]
        message = choice.get("message")
        text = choice["text"] if message is None else message.get("content")
        finish = choice.get("finish_reason")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise TemporaryError("no OpenAI reply", f"found {str(body)[:80]!r}") from error
    if finish in ("abort", "error"):
        raise TemporaryError("aborted", f"finish_reason {finish!r}")
    parts = [message.get(key) for key in _REASONING_FIELDS] if message is not None else []
    reasoning = next(filter(None, parts), "")
    for name, part in (("text", text or ""), ("reasoning", reasoning)):
        if not isinstance(part, str):
            raise TemporaryError("no OpenAI reply", f"its {name} is {str(part)[:80]!r}")
    # Ids are exact only if the server also returns the reason for the end.
    has_exact_ids = "stop_reason" in choice
    stop = choice.get("stop_reason")
    return ServerReply(
        text or "",
        finish if finish in ("stop", "length") else "unknown",
        _parse_ids(choice.get("prompt_token_ids", body.get("prompt_token_ids"))),
        _parse_ids(choice.get("token_ids")) if has_exact_ids else None,
        stop if isinstance(stop, str) else None,
        reasoning,
    )


def _parse_ids(ids: Any) -> tuple[int, ...] | None:
    if isinstance(ids, list) and all(type(number) is int for number in ids):
        return tuple(ids)
    return None
