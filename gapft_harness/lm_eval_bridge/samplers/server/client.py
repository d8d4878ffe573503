"""Send concurrent requests to a server, each with retries up to a limit.

lm-eval's own client gives up after a few attempts, ignores ``Retry-After``, and loses all finished
requests of a call when one fails. Only its payloads and headers are used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import aiohttp
from requests.utils import get_environ_proxies, prepend_scheme_if_needed, select_proxy
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from gapft_harness.core.credentials import KEY_VARIABLE, strip_credentials
from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.replies import (
    ServerError,
    TemporaryError,
    TooLongError,
    read_error_message,
    status_error,
)

Reply = TypeVar("Reply")

#: Statuses of a server that is running but busy.
_BUSY = (429, 503)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a failed request is retried.

    Attributes:
        attempts: maximum number of attempts.
        first_wait_s: seconds before the second attempt; doubled each time, plus a random time of
            at most ``first_wait_s``.
        longest_wait_s: maximum of the doubled time in seconds.
    """

    attempts: int
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcomes(Generic[Reply]):
    """The outcomes of some requests, in their order.

    Attributes:
        replies: None for a request that failed, was not sent, or does not fit.
        errors: the last error of each failed request, by its index.
        too_long: the indices of requests that do not fit the model's context.
        unsent: number of requests not sent because another one had failed.
    """

    replies: list[Reply | None]
    errors: dict[int, ServerError]
    too_long: set[int]
    unsent: int

    @property
    def failure_counts(self) -> str:
        """Count of failures by kind: ``status 503 (2), timeout (1)``."""
        kinds = Counter(error.summary for error in self.errors.values())
        return ", ".join(f"{what} ({count})" for what, count in kinds.most_common())


class ServerClient:
    """Sends JSON to one server. Each call opens its own connections."""

    def __init__(
        self,
        headers: Mapping[str, str],
        timeout: float,
        concurrent: int,
        retry_policy: RetryPolicy,
        ssl: Any = True,
    ) -> None:
        """Store the settings; nothing is sent.

        Args:
            headers: sent with every request; the key in ``Authorization`` is removed from messages.
            timeout: seconds for one attempt.
            concurrent: maximum number of concurrent requests.
            retry_policy: how failed requests are retried.
            ssl: True, False (certificates are not checked) or an ``ssl.SSLContext``.
        """
        self._headers = dict(headers)
        self._timeout = timeout
        self._concurrent = concurrent
        self._retry_policy = retry_policy
        self._ssl = ssl
        self._paused_until = 0.0

    def post_all(
        self, url: str, payloads: Sequence[Any], read: Callable[[bytes], Reply]
    ) -> Outcomes[Reply]:
        """Post all payloads concurrently, with retries.

        A request that does not fit the model's context does not stop the others. After a request
        has finally failed, no more requests are sent; those already sent are completed.

        Args:
            url: the endpoint.
            payloads: JSON values.
            read: parses the bytes of a reply; raises ``ServerError``.
        """
        return asyncio.run(self._post_all(url, payloads, read))

    def send(
        self, method: str, url: str, read: Callable[[bytes], Reply], payload: Any = None
    ) -> Reply:
        """Send one request; retry only if the server is busy.

        Raises:
            ServerError: it failed.
        """

        async def send_request() -> Reply:
            async with self._open_session() as session:
                request = partial(self._send_once, session, method, url, payload, read)
                return await self._send_with_retries(request, _BUSY)

        return asyncio.run(send_request())

    async def _post_all(
        self, url: str, payloads: Sequence[Any], read: Callable[[bytes], Reply]
    ) -> Outcomes[Reply]:
        outcomes: Outcomes[Reply] = Outcomes([None] * len(payloads), {}, set(), 0)
        unsent = 0
        slots = asyncio.Semaphore(self._concurrent)
        self._paused_until = 0.0

        async def post(number: int, session: aiohttp.ClientSession) -> None:
            nonlocal unsent
            # A request keeps its place while it waits for its next try: a server in trouble
            # gets fewer concurrent requests.
            async with slots:
                if outcomes.errors:
                    unsent += 1
                    return
                try:
                    request = partial(self._send_once, session, "POST", url, payloads[number], read)
                    outcomes.replies[number] = await self._send_with_retries(request)
                except TooLongError:
                    outcomes.too_long.add(number)
                except ServerError as error:
                    outcomes.errors[number] = error

        async with self._open_session() as session:
            await asyncio.gather(*(post(number, session) for number in range(len(payloads))))
        return Outcomes(outcomes.replies, outcomes.errors, outcomes.too_long, unsent)

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._concurrent, ssl=self._ssl),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            headers=self._headers,
        )

    async def _send_with_retries(
        self, request: Callable[[], Awaitable[Reply]], statuses: Sequence[int] = ()
    ) -> Reply:
        """Send a request with retries; ``statuses`` limits retries to these statuses."""

        def is_retryable(error: BaseException) -> bool:
            return isinstance(error, TemporaryError) and (not statuses or error.status in statuses)

        first, longest = self._retry_policy.first_wait_s, self._retry_policy.longest_wait_s
        backoff = wait_exponential(multiplier=first, max=longest) + wait_random(0, first)

        retrying = AsyncRetrying(
            retry=retry_if_exception(is_retryable),
            stop=stop_after_attempt(self._retry_policy.attempts),
            wait=backoff,
            reraise=True,
        )
        return await retrying(request)

    async def _send_once(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        payload: Any,
        read: Callable[[bytes], Reply],
    ) -> Reply:
        """Send a request once.

        Raises:
            ServerError: it failed; ``TemporaryError`` if another attempt may succeed.
        """
        while (pause := self._paused_until - time.monotonic()) > 0:
            # Spread the requests over time when the pause ends.
            await asyncio.sleep(pause + random.uniform(0, self._retry_policy.first_wait_s))
        proxy = find_proxy(url)
        try:
            async with session.request(method, url, json=payload, proxy=proxy) as response:
                body = await response.read()
                if response.status >= 400:
                    raise self._refused_error(response.status, response.headers, body)
        except TimeoutError as error:
            raise TemporaryError("timeout", f"no reply within {self._timeout:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise TemporaryError("no connection", self._redact(str(error))) from error
        except aiohttp.ClientHttpProxyError as error:
            detail = self._redact(
                f"the proxy refuses the connection: {error.status} {error.message}"
            )
            raise ServerError("refused by the proxy", detail) from error
        except aiohttp.ClientError as error:
            raise TemporaryError("dropped connection", self._redact(str(error))) from error
        try:
            return read(body)
        except ServerError as error:
            error.detail = self._redact(error.detail)
            raise

    def _refused_error(self, status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
        error = status_error(status, headers, self._redact(read_error_message(body)))
        if isinstance(error, TemporaryError):
            # The limit that this request reached holds for all requests.
            self._paused_until = max(self._paused_until, time.monotonic() + error.retry_after)
        return error

    def _redact(self, text: str) -> str:
        """Return a text as one short line, without the key."""
        secret = self._headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if secret:
            text = text.replace(secret, "***")
        return " ".join(text.split())[:300]


def find_proxy(url: str) -> str | None:
    """Return the proxy for a URL; None for a direct connection.

    Reads ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` (in upper or lower case)
    as ``requests`` and ``curl`` do. A server on this machine never uses a proxy.

    Raises:
        UserError: the proxy's scheme is not http or https.
    """
    host = urlsplit(url).hostname or ""
    if is_local_host(host):
        return None
    proxy = select_proxy(url, get_environ_proxies(url))
    if not proxy:
        return None
    proxy = prepend_scheme_if_needed(proxy, "http")
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise UserError(
            f"server {strip_credentials(url)}: found the proxy {strip_credentials(proxy)} in "
            "the environment; expected http://HOST:PORT in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY; "
            "or add the server to NO_PROXY to connect directly"
        )
    return str(proxy)


def is_local_host(host: str) -> bool:
    """Return whether a host is localhost, by name or address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def build_client(
    settings: SamplerSettings, arguments: ServerArguments, retry_policy: RetryPolicy
) -> ServerClient:
    """Build a sampler's client, with the key from the environment, the rest from ``model_args``.

    Raises:
        UserError: ``ca_cert_path`` is not a file.
    """
    key = os.environ.get(KEY_VARIABLE, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    extra_headers = settings.model_args.get("header") or {}
    return ServerClient(
        headers | {str(name): str(value) for name, value in extra_headers.items()},
        arguments.timeout,
        arguments.concurrent,
        retry_policy,
        _choose_ssl(settings.model_args),
    )


def _choose_ssl(args: Mapping[str, Any]) -> Any:
    """Return aiohttp's ``ssl`` for lm-eval's ``verify_certificate`` and ``ca_cert_path``."""
    if not args.get("verify_certificate", True):
        return False
    path = args.get("ca_cert_path")
    if path is None:
        return True
    if not os.path.isfile(path):
        raise UserError(f"model.args: ca_cert_path: file {path!r} not found; expected a PEM file")
    return ssl.create_default_context(cafile=path)
