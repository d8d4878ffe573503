"""Send requests to an OpenAI-compatible server, concurrently and with retries; read its replies."""

from __future__ import annotations

import email.utils
import ipaddress
import json
import os
import random
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import tenacity
from pydantic import BaseModel, Field

from gapft_harness.core.credentials import KEY_VARIABLE, strip_credentials
from gapft_harness.core.errors import UserError
from gapft_harness.core.text import replace_surrogates
from gapft_harness.lm_eval_bridge.samplers.endings import ids_of_text
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments

T = TypeVar("T")

#: Statuses of temporary failures: the same request may succeed later. The first two are those of a
#: server that is running but busy.
_BUSY = (429, 503)
_TEMPORARY = (*_BUSY, 408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524, 529)
#: Errors on a prompt beyond the model's context: OpenAI and vLLM "maximum context length", vLLM's
#: engine "maximum model length", SGLang "context length", llama.cpp "context size".
_REJECTED = (400, 413, 422)
_CONTEXT_MESSAGE = re.compile(r"context (length|size|window)|maximum model length", re.IGNORECASE)
#: If a server asks to wait longer than this (seconds), the request fails.
_LONGEST_RETRY_AFTER = 900.0

#: What a request raises: no or a refusing answer (httpx), or one that is not as expected.
ServerError = (httpx.HTTPError, ValueError)


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
    has_text = choice.message.model_fields_set if choice.message else choice.text is not None
    if not has_text or choice.finish_reason in ("abort", "error"):
        raise ValueError("no text")
    ids = choice.prompt_token_ids or completion.prompt_token_ids
    return choice.model_copy(update={"prompt_token_ids": ids})


class ServerClient:
    """Sends JSON to one server.

    Raises:
        UserError: the environment names a proxy of an unknown kind.
    """

    def __init__(self, arguments: ServerArguments) -> None:
        self.name, self._arguments = arguments.server, arguments
        self._url = arguments.base_url
        self._key = os.environ.get(KEY_VARIABLE, "")
        self._paused_until = 0.0
        headers = {name: str(value) for name, value in arguments.header.items()}
        if self._key:
            headers = {"Authorization": f"Bearer {self._key}", **headers}
        certificates = ssl.create_default_context(cafile=arguments.ca_cert_path)
        try:
            self._http = httpx.Client(
                headers={"Content-Type": "application/json", **headers},
                timeout=arguments.timeout,
                limits=httpx.Limits(max_connections=arguments.num_concurrent),
                verify=certificates if arguments.verify_certificate else False,
                trust_env=not is_local_host(urlsplit(self._url).hostname or ""),
            )
        except (ValueError, ImportError) as error:
            raise UserError(
                f"{self.name}{self._describe_proxy()}: the proxy is not supported; expected "
                "http://HOST:PORT, or the server in NO_PROXY"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, url: str, payload: Any = None) -> Any:
        """Send one request, and again only if the server is busy; return its JSON, else its text.

        Raises:
            ServerError: it failed.
        """
        method = "GET" if payload is None else "POST"
        response = self._retry(_is_busy, lambda: self._send(method, url, payload))
        try:
            return replace_surrogates(response.json())
        except ValueError:
            return response.text

    def complete(self, payload: Any, *, is_check: bool = False) -> Choice:
        """Ask for one text, with retries.

        Args:
            payload: the request.
            is_check: whether it is sent again only if the server is busy.

        Raises:
            ServerError: it failed in all attempts.
        """

        def send() -> Choice:
            body = self._send("POST", self._url, payload).content
            try:
                return read_choice(replace_surrogates(json.loads(body)))
            except ValueError as error:
                start = body[:80].decode("utf-8", "replace")
                raise ValueError(f"no OpenAI reply, found {start!r}") from error

        return self._retry(_is_busy if is_check else is_temporary, send)

    def complete_all(
        self, payloads: Sequence[Any], report: Callable[[Choice], None]
    ) -> list[Choice | Exception | None]:
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
        failed, lock = threading.Event(), threading.Lock()

        def post(payload: Any) -> Choice | Exception | None:
            if failed.is_set():
                return None
            try:
                choice = self.complete(payload)
            except ServerError as error:
                if not is_too_long(error):
                    failed.set()
                return error
            with lock:
                report(choice)
            return choice

        with ThreadPoolExecutor(self._arguments.num_concurrent) as pool:
            return list(pool.map(post, payloads))

    def describe(self, error: Exception) -> str:
        """Describe an error in one short line, without the key."""
        text = f"{error or type(error).__name__}{self._describe_proxy()}"
        if isinstance(error, httpx.HTTPStatusError):
            text = f"status {error.response.status_code}: {_read_message(error.response)}"
            if wait_s := _read_retry_after(error.response):
                text += f" (it asks to wait {wait_s:.0f} s)"
        if self._key:
            text = text.replace(self._key, "***")
        return " ".join(text.split())[:300]

    def _retry(self, is_retryable: Callable[[BaseException], bool], send: Callable[[], T]) -> T:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_retryable),
            stop=tenacity.stop_after_attempt(self._arguments.max_retries),
            wait=tenacity.wait_exponential(multiplier=1, max=60) + tenacity.wait_random(0, 1),
            reraise=True,
        )
        return retrying(send)

    def _send(self, method: str, url: str, payload: Any) -> httpx.Response:
        while (pause := self._paused_until - time.monotonic()) > 0:
            # Spread the requests over time when the pause ends.
            time.sleep(pause + random.uniform(0, 1))
        content = None if payload is None else json.dumps(payload)
        response = self._http.request(method, url, content=content)
        try:
            return response.raise_for_status()
        except httpx.HTTPStatusError as error:
            if is_temporary(error):  # the limit that this request reached holds for all requests
                pause_end = time.monotonic() + _read_retry_after(response)
                self._paused_until = max(self._paused_until, pause_end)
            raise

    def _describe_proxy(self) -> str:
        parts, proxies = urlsplit(self._url), urllib.request.getproxies()
        proxy, host = proxies.get(parts.scheme) or proxies.get("all"), parts.hostname or ""
        if not proxy or is_local_host(host) or urllib.request.proxy_bypass(host):
            return ""
        return f" (through the proxy {strip_credentials(proxy)} of the environment)"


def is_temporary(error: BaseException) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(error, httpx.HTTPStatusError):
        wait_s = _read_retry_after(error.response)
        return error.response.status_code in _TEMPORARY and wait_s <= _LONGEST_RETRY_AFTER
    return isinstance(error, httpx.TransportError | ValueError)


def is_too_long(error: Exception) -> bool:
    """Return whether the prompt with the new tokens does not fit the model's context."""
    if not isinstance(error, httpx.HTTPStatusError):
        return False
    is_rejected = error.response.status_code in _REJECTED
    return is_rejected and _CONTEXT_MESSAGE.search(_read_message(error.response)) is not None


def find_status(error: Exception) -> int | None:
    """Return the HTTP status of an error; None without a complete reply."""
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, Exception) and find_status(error) in _BUSY and is_temporary(error)


def _read_retry_after(response: httpx.Response) -> float:
    """Read the ``Retry-After`` header (a number or a date) in seconds; 0 if it is neither."""
    value = response.headers.get("Retry-After", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
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


def is_local_host(host: str) -> bool:
    """Return whether a host is localhost, by name or address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
