"""Send requests to an OpenAI-compatible server, concurrently and with retries; read its replies."""

from __future__ import annotations

import json
import os
import random
import re
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import tenacity
from pydantic import BaseModel, Field

from gapft_harness.core.credentials import KEY_VARIABLE
from gapft_harness.core.errors import UserError
from gapft_harness.core.text import replace_surrogates
from gapft_harness.lm_eval_bridge.samplers.endings import ids_of_text
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments

T = TypeVar("T")

#: Statuses of temporary failures: the same request may succeed later. The first two are those of a
#: server that is running but busy.
_BUSY = (429, 503)
_TEMPORARY = (*_BUSY, 408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524, 529)
#: Statuses of a refused prompt.
_CONTEXT_STATUSES = (400, 413, 422)
#: Errors on a prompt beyond the model's context: OpenAI and vLLM "maximum context length", vLLM's
#: engine "maximum model length", SGLang "context length", llama.cpp "context size".
_CONTEXT_MESSAGE = re.compile(r"context (length|size|window)|maximum model length", re.IGNORECASE)
#: If a server asks to wait longer than this (seconds), the request fails.
_LONGEST_RETRY_AFTER = 900.0
#: Hosts that are asked directly, whatever proxy the environment names.
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


class RequestError(Exception):
    """A request without a usable reply.

    Attributes:
        reason: what failed, without the key.
        status: the HTTP status of an error reply; None if there was no reply, or a successful one
            was not in OpenAI's form.
        wait_s: seconds that the server asks to wait.
    """

    def __init__(self, reason: str, status: int | None = None, wait_s: float = 0.0) -> None:
        super().__init__(" ".join(reason.split())[:300])
        self.reason = reason
        self.status = status
        self.wait_s = wait_s

    @property
    def is_temporary(self) -> bool:
        """Whether another attempt may succeed."""
        is_temporary_status = self.status is None or self.status in _TEMPORARY
        return is_temporary_status and self.wait_s <= _LONGEST_RETRY_AFTER

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt with the new tokens does not fit the model's context."""
        return self.status in _CONTEXT_STATUSES and _CONTEXT_MESSAGE.search(self.reason) is not None


class Message(BaseModel):
    """The message of a chat's choice.

    A server with a reasoning parser returns the model's reasoning apart from ``content``, which is
    null or missing if generation ended before the answer.
    """

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class Choice(BaseModel):
    """One generated text, in OpenAI's form with the fields of vLLM's ``return_token_ids``.

    Attributes:
        text: the text of a completion, without its stop string.
        message: the message of a chat.
        finish_reason: ``stop``, ``length`` or another reason.
        stop_reason: the stop string, the id that ended the text, or null for the model's end of
            sequence.
        token_ids: all generated ids, including those of the end, of the stop string, and of a
            separate reasoning with its tags.
        prompt_token_ids: the prompt's ids on the server.
    """

    text: str | None = None
    message: Message | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None

    @property
    def content(self) -> str:
        """The text of a completion or of a chat's answer."""
        return (self.message.content if self.message else self.text) or ""

    @property
    def reasoning(self) -> str:
        """The reasoning that the server returned apart from the text; else empty."""
        message = self.message
        return (message and (message.reasoning_content or message.reasoning)) or ""

    @property
    def stop_string(self) -> str:
        """The stop string that ended the text; empty for any other end."""
        return self.stop_reason if isinstance(self.stop_reason, str) else ""

    def find_text_ids(
        self, decode: Callable[[Sequence[int]], str] | None
    ) -> tuple[int, ...] | None:
        """Return the ids of the reasoning and the text, or None if they cannot be found exactly.

        Args:
            decode: returns the text of ids without special tokens; needed after a stop string.
        """
        # Ids are exact only if the server also returns the reason for the end.
        if self.token_ids is None or "stop_reason" not in self.model_fields_set:
            return None
        if not self.stop_string:
            return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids
        if decode is None:
            return None
        # ``ids_of_text`` needs the complete text: reasoning, its tags and the answer.
        text = self.content
        if self.reasoning:
            full_text = decode(self.token_ids)
            end = full_text.rfind(text + self.stop_string)
            if end < 0:
                return None
            text = full_text[: end + len(text)]
        return tuple(ids_of_text(self.token_ids, text, decode))


class _Completion(BaseModel):
    choices: list[Choice] = Field(min_length=1, max_length=1)
    prompt_token_ids: tuple[int, ...] | None = None


def read_choice(reply: Any) -> Choice:
    """Read the reply to a completion or chat completion with one choice.

    Raises:
        ValueError: it is not in OpenAI's form, or the server aborted the generation.
    """
    completion = _Completion.model_validate(reply)
    choice = completion.choices[0]
    message = choice.message
    has_reply = bool(message.model_fields_set) if message else choice.text is not None
    if not has_reply or choice.finish_reason in ("abort", "error"):
        raise ValueError("no text")
    ids = choice.prompt_token_ids or completion.prompt_token_ids
    return choice.model_copy(update={"prompt_token_ids": ids})


class ServerClient:
    """Sends JSON to one server.

    Raises:
        UserError: the environment names a proxy of an unknown kind, or certificates, headers or
            the key cannot be used.
    """

    def __init__(self, arguments: ServerArguments) -> None:
        self.name = arguments.server
        self._arguments = arguments
        self._key = os.environ.get(KEY_VARIABLE, "")
        self._paused_until = 0.0
        headers = {name: str(value) for name, value in arguments.header.items()}
        if self._key:
            headers = {"Authorization": f"Bearer {self._key}", **headers}
        try:
            certificates = ssl.create_default_context(cafile=arguments.ca_cert_path)
        except OSError as error:
            raise UserError(
                f"model.args: ca_cert_path: {arguments.ca_cert_path}: {error}"
            ) from error
        try:
            self._http = httpx.Client(
                headers={"Content-Type": "application/json", **headers},
                timeout=arguments.timeout,
                limits=httpx.Limits(max_connections=arguments.num_concurrent),
                verify=certificates if arguments.verify_certificate else False,
                trust_env=urlsplit(arguments.base_url).hostname not in _LOCAL_HOSTS,
            )
        except UnicodeError as error:
            raise UserError(f"{self.name}: model.args.header or the key: expected ASCII") from error
        except (ValueError, ImportError) as error:  # httpx hides the proxy's password
            raise UserError(f"{self.name}: the environment's proxy: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request_json(self, url: str, payload: Any = None) -> Any:
        """Send one request, and again only if the server is busy; return its JSON, else its text.

        Raises:
            RequestError: it failed.
        """

        def read(body: bytes) -> Any:
            try:
                return replace_surrogates(json.loads(body))
            except ValueError:
                return body.decode("utf-8", "replace")

        return self._send(url, payload, read, retry_failures=False)

    def complete(self, payload: Any, *, retry_failures: bool = True) -> Choice:
        """Ask for one text.

        Args:
            payload: the request.
            retry_failures: whether it is sent again after any temporary failure; else only if
                the server is busy.

        Raises:
            RequestError: it failed in all attempts.
        """

        def read(body: bytes) -> Choice:
            try:
                return read_choice(replace_surrogates(json.loads(body)))
            except ValueError as error:
                start = body[:80].decode("utf-8", "replace")
                raise RequestError(f"no OpenAI reply, found {start!r}") from error

        return self._send(self._arguments.base_url, payload, read, retry_failures=retry_failures)

    def complete_all(
        self, payloads: Sequence[Any], report: Callable[[Choice], None]
    ) -> list[Choice | RequestError | None]:
        """Ask for all texts concurrently, with retries.

        A request that does not fit the model's context does not stop the others. After a request
        has finally failed, no more requests are sent; those already sent are completed. A request
        keeps its thread while it waits for its next try: a server in trouble gets fewer concurrent
        requests.

        Args:
            payloads: the requests.
            report: called with each text.

        Returns:
            In the order of the payloads the text, the last error, or None if it was not sent.
        """
        failed = threading.Event()
        lock = threading.Lock()

        def post(payload: Any) -> Choice | RequestError | None:
            if failed.is_set():
                return None
            try:
                choice = self.complete(payload)
            except RequestError as error:
                if not error.is_too_long:
                    failed.set()
                return error
            with lock:
                report(choice)
            return choice

        with ThreadPoolExecutor(self._arguments.num_concurrent) as pool:
            return list(pool.map(post, payloads))

    def _send(
        self, url: str, payload: Any, read: Callable[[bytes], T], *, retry_failures: bool
    ) -> T:
        """Send a request until it succeeds or the attempts are used up."""

        def is_retryable(error: BaseException) -> bool:
            if not isinstance(error, RequestError):
                return False
            return error.is_temporary and (retry_failures or error.status in _BUSY)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_retryable),
            stop=tenacity.stop_after_attempt(self._arguments.max_retries),
            wait=tenacity.wait_exponential(multiplier=1, max=60) + tenacity.wait_random(0, 1),
            reraise=True,
        )
        return retrying(lambda: read(self._send_once(url, payload)))

    def _send_once(self, url: str, payload: Any) -> bytes:
        while (pause := self._paused_until - time.monotonic()) > 0:
            # Spread the requests over time when the pause ends.
            time.sleep(pause + random.uniform(0, 1))
        method, content = ("GET", None) if payload is None else ("POST", json.dumps(payload))
        try:
            response = self._http.request(method, url, content=content)
        except httpx.HTTPError as error:
            raise RequestError(self._hide_key(str(error) or type(error).__name__)) from error
        if response.is_success:
            return response.content
        wait_s = _read_retry_after(response)
        reason = f"status {response.status_code}: {_read_message(response)}"
        if wait_s:
            reason += f" (it asks to wait {wait_s:.0f} s)"
        failure = RequestError(self._hide_key(reason), response.status_code, wait_s)
        if failure.is_temporary:  # the limit that this request reached holds for all requests
            self._paused_until = max(self._paused_until, time.monotonic() + wait_s)
        raise failure

    def _hide_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _read_retry_after(response: httpx.Response) -> float:
    """Read the ``Retry-After`` header in seconds; 0 without a number."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return 0.0


def _read_message(response: httpx.Response) -> str:
    """Read the message of an error reply in OpenAI's form, in FastAPI's, or as plain text."""
    try:
        reply = replace_surrogates(response.json())
    except ValueError:
        return response.text
    for key in ("error", "detail", "message"):
        reply = reply.get(key, reply) if isinstance(reply, dict) else reply
    return str(reply)
