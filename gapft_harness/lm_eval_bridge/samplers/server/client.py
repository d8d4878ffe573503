"""Requests to a server: many at once, each tried again until it succeeds or a bound is reached.

lm-eval's own client gives up after a few tries, ignores ``Retry-After``, and loses every finished
request of a call with the first one that fails. Only its payloads and headers are used here.
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

from gapft_harness.core.credentials import KEY_VARIABLE, without_credentials
from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.replies import (
    PassingError,
    ServerError,
    TooLongError,
    message_of,
    refused,
)

Reply = TypeVar("Reply")

#: Statuses of a server that is there and has no time.
_BUSY = (429, 503)


@dataclass(frozen=True, slots=True)
class Patience:
    """How a failed request is tried again.

    Attributes:
        tries: how often in all.
        first: seconds before the second try; doubled each time, with up to as much at random.
        longest: seconds, the most that doubling leads to.
    """

    tries: int
    first: float = 1.0
    longest: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcomes(Generic[Reply]):
    """What became of some requests, in their order.

    Attributes:
        replies: None where a request failed, was not sent, or does not fit.
        errors: the last error of each request that failed, by its place.
        too_long: the places of requests that do not fit the model's context.
        unsent: how many were never sent, since another had failed for good.
    """

    replies: list[Reply | None]
    errors: dict[int, ServerError]
    too_long: set[int]
    unsent: int

    @property
    def counts(self) -> str:
        """The failures by kind: ``status 503 (2), timeout (1)``."""
        kinds = Counter(error.what for error in self.errors.values())
        return ", ".join(f"{what} ({count})" for what, count in kinds.most_common())


class ServerClient:
    """Talks JSON to one server. Each call opens connections of its own."""

    def __init__(
        self,
        headers: Mapping[str, str],
        timeout: float,
        concurrent: int,
        patience: Patience,
        ssl: Any = True,
    ) -> None:
        """Notes how to talk; nothing is sent.

        Args:
            headers: sent with every request; the key in ``Authorization`` is cut from messages.
            timeout: seconds for one try.
            ssl: True, False (certificates are not checked) or an ``ssl.SSLContext``.
        """
        self._headers = dict(headers)
        self._timeout = timeout
        self._concurrent = concurrent
        self._patience = patience
        self._ssl = ssl
        self._closed_until = 0.0

    def post_all(
        self, url: str, payloads: Sequence[Any], read: Callable[[bytes], Reply]
    ) -> Outcomes[Reply]:
        """Posts every payload; a request that fails is tried again, the others go on meanwhile.

        One that does not fit the model's context is noted, and stops nothing.
        Once one has failed for good, those not yet sent are left; those under way finish.

        Args:
            read: makes a reply of the bytes that came back; raises ``ServerError``.
        """
        return asyncio.run(self._post_all(url, payloads, read))

    def once(
        self, method: str, url: str, read: Callable[[bytes], Reply], payload: Any = None
    ) -> Reply:
        """One request, tried again only where the server is busy.

        Raises:
            ServerError: it failed.
        """

        async def alone() -> Reply:
            async with self._session() as session:
                request = partial(self._try, session, method, url, payload, read)
                return await self._patiently(request, _BUSY)

        return asyncio.run(alone())

    async def _post_all(
        self, url: str, payloads: Sequence[Any], read: Callable[[bytes], Reply]
    ) -> Outcomes[Reply]:
        outcomes: Outcomes[Reply] = Outcomes([None] * len(payloads), {}, set(), 0)
        unsent = 0
        places = asyncio.Semaphore(self._concurrent)
        self._closed_until = 0.0

        async def one(place: int, session: aiohttp.ClientSession) -> None:
            nonlocal unsent
            # A request keeps its place while it waits for its next try: a server in trouble
            # gets fewer requests at once.
            async with places:
                if outcomes.errors:
                    unsent += 1
                    return
                try:
                    request = partial(self._try, session, "POST", url, payloads[place], read)
                    outcomes.replies[place] = await self._patiently(request)
                except TooLongError:
                    outcomes.too_long.add(place)
                except ServerError as error:
                    outcomes.errors[place] = error

        async with self._session() as session:
            await asyncio.gather(*(one(place, session) for place in range(len(payloads))))
        return Outcomes(outcomes.replies, outcomes.errors, outcomes.too_long, unsent)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._concurrent, ssl=self._ssl),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            headers=self._headers,
        )

    async def _patiently(
        self, request: Callable[[], Awaitable[Reply]], only: Sequence[int] = ()
    ) -> Reply:
        """One request with its retries; ``only``, if given, are the statuses worth one."""

        def again(error: BaseException) -> bool:
            return isinstance(error, PassingError) and (not only or error.status in only)

        first, longest = self._patience.first, self._patience.longest
        backoff = wait_exponential(multiplier=first, max=longest) + wait_random(0, first)

        retrying = AsyncRetrying(
            retry=retry_if_exception(again),
            stop=stop_after_attempt(self._patience.tries),
            wait=backoff,
            reraise=True,
        )
        return await retrying(request)

    async def _try(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        payload: Any,
        read: Callable[[bytes], Reply],
    ) -> Reply:
        """One try.

        Raises:
            ServerError: it failed; ``PassingError`` where another try may succeed.
        """
        while (pause := self._closed_until - time.monotonic()) > 0:
            # Not all in the same moment when the server opens again.
            await asyncio.sleep(pause + random.uniform(0, self._patience.first))
        proxy = find_proxy(url)
        try:
            async with session.request(method, url, json=payload, proxy=proxy) as response:
                body = await response.read()
                if response.status >= 400:
                    raise self._refused(response.status, response.headers, body)
        except TimeoutError as error:
            raise PassingError("timeout", f"no whole reply within {self._timeout:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise PassingError("no connection", self._clean(str(error))) from error
        except aiohttp.ClientHttpProxyError as error:
            said = self._clean(f"the proxy refuses the connection: {error.status} {error.message}")
            raise ServerError("refused by the proxy", said) from error
        except aiohttp.ClientError as error:
            raise PassingError("dropped connection", self._clean(str(error))) from error
        try:
            return read(body)
        except ServerError as error:
            error.detail = self._clean(error.detail)
            raise

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
        error = refused(status, headers, self._clean(message_of(body)))
        if isinstance(error, PassingError):
            # All requests share the limit that this one ran into.
            self._closed_until = max(self._closed_until, time.monotonic() + error.retry_after)
        return error

    def _clean(self, text: str) -> str:
        """One short line, without any key that we sent."""
        secret = self._headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if secret:
            text = text.replace(secret, "***")
        return " ".join(text.split())[:300]


def find_proxy(url: str) -> str | None:
    """Return the proxy through which a URL is asked for; None: it is asked for directly.

    ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``ALL_PROXY`` name proxies, and ``NO_PROXY`` hosts that need
    none, in large or small letters, as ``requests`` and ``curl`` read them. A server on this
    machine is always asked directly.

    Raises:
        UserError: the proxy is neither http nor https.
    """
    host = urlsplit(url).hostname or ""
    if is_on_this_machine(host):
        return None
    proxy = select_proxy(url, get_environ_proxies(url))
    if not proxy:
        return None
    proxy = prepend_scheme_if_needed(proxy, "http")
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise UserError(
            f"server {without_credentials(url)}: the environment names the proxy "
            f"{without_credentials(proxy)}; expected http://HOST:PORT in HTTP_PROXY, HTTPS_PROXY "
            "or ALL_PROXY; or name the server in NO_PROXY to ask it directly"
        )
    return str(proxy)


def is_on_this_machine(host: str) -> bool:
    """Whether a host is localhost, by name or by address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def client_of(
    settings: SamplerSettings, arguments: ServerArguments, patience: Patience
) -> ServerClient:
    """The client of a sampler: its key out of the environment, all else out of ``model_args``.

    Raises:
        UserError: ``ca_cert_path`` is no file.
    """
    key = os.environ.get(KEY_VARIABLE, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    given = settings.model_args.get("header") or {}
    return ServerClient(
        headers | {str(name): str(value) for name, value in given.items()},
        arguments.timeout,
        arguments.concurrent,
        patience,
        _ssl(settings.model_args),
    )


def _ssl(args: Mapping[str, Any]) -> Any:
    """What aiohttp takes for ``ssl``: as lm-eval's ``verify_certificate`` and ``ca_cert_path``."""
    if not args.get("verify_certificate", True):
        return False
    path = args.get("ca_cert_path")
    if path is None:
        return True
    if not os.path.isfile(path):
        raise UserError(f"model.args: ca_cert_path: no file {path!r}; expected a PEM file")
    return ssl.create_default_context(cafile=path)
