"""What an OpenAI-compatible server answers: one reply's text, its end, and token ids if it has any.

Token ids are those of vLLM's ``return_token_ids`` (read in vllm 0.32.0): ``token_ids`` of a choice
holds all generated ids, those of the end and of the stop string included; ``stop_reason`` is the
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


_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ServerReply:
    """One generated text.

    Attributes:
        text: without its stop string.
        finish_reason: ``stop``, ``length`` or ``unknown``.
        prompt_ids: the ids that the server generated on; None where it does not say.
        token_ids: all generated ids, see above; None where the server does not say.
        stop: the stop string that ended the text; None for any other end.
    """

    text: str
    finish_reason: str
    prompt_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    stop: str | None

    def ids_of_text(self, decode: Callable[[Sequence[int]], str] | None) -> tuple[int, ...] | None:
        """The ids that make up ``text``, or None where that cannot be known exactly.

        Args:
            decode: gives the text of ids, special tokens left out; needed after a stop string.
        """
        if self.token_ids is None:
            return None
        if self.stop is not None:
            return tuple(ids_of_text(self.token_ids, self.text, decode)) if decode else None
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids


def read_reply(reply: bytes) -> ServerReply:
    """Reads the reply to a completion or chat completion of one choice.

    Raises:
        PassingError: it is torn or has no such form, or the server broke the generation off.
        ServerError: the server keeps a part of the generated text apart.
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
            "the server splits reasoning off the text; start it without a reasoning parser",
        )
    if finish in ("abort", "error"):
        raise PassingError("aborted", f"finish_reason {finish!r}")
    if text is not None and not isinstance(text, str):
        raise PassingError("no OpenAI reply", f"its text is {str(text)[:80]!r}")
    # Ids are trusted where the server also says what ended them.
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
