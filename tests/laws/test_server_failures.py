"""The law of failing servers: what is retried, what is refused, and that nothing is lost.

Each row is a failure of a real server on loopback; the sampler is created as a run creates it.
"""

from __future__ import annotations

import collections
import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gapft_harness.api import (
    Decoding,
    Generated,
    Sampler,
    SamplerSettings,
    UserError,
    beyond_context,
)
from gapft_harness.core.errors import GapftError
from gapft_harness.hooks.manager import load_plugins
from tests import toy_server
from tests.asking import generate_all, make_request
from tests.toy_server import Fault, ToyServer, fail_with_status

_monotonic, _sleep = time.monotonic, time.sleep


class VirtualClock:
    """Time that also passes when all requests that can be under way wait.

    Attributes:
        requests: the number of these requests.
    """

    def __init__(self) -> None:
        self.requests = 1
        self._skipped = 0.0
        self._ends: list[float] = []
        self._lock = threading.RLock()

    def read(self) -> float:
        """Return the time in seconds, as ``time.monotonic`` does."""
        return _monotonic() + self._skipped

    def wait_for_request(self, seconds: float) -> None:
        """Return when a request waits, or after some seconds of real time."""
        end = _monotonic() + seconds
        while not self._ends and _monotonic() < end:
            _sleep(0.002)

    def sleep(self, seconds: float) -> None:
        """Wait, as ``time.sleep`` does."""
        end = self.read() + seconds
        self._ends.append(end)
        while not self._is_reached(end):
            _sleep(0.002)
        self._ends.remove(end)

    def _is_reached(self, end: float) -> bool:
        """Return whether a wait has ended; skip to its end if all requests wait longer."""
        with self._lock:
            if len(self._ends) >= self.requests and end == min(self._ends):
                self._skipped += max(0.0, end - self.read())
            return self.read() >= end


SAMPLED = Decoding(do_sample=True, max_gen_toks=20, temperature=0.9)
REQUESTS = [make_request(f"p{i}", f"prompt {i}", (0, 1)) for i in range(3)]
COUNT = 6
ATTEMPTS = 3
#: Seconds that a server asks to wait. Without that, a retry comes after a few seconds.
PAUSE = 100


@pytest.fixture
def server() -> Iterator[ToyServer]:
    with ToyServer() as toy:
        yield toy


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """Replace the clock of this process."""
    virtual = VirtualClock()
    monkeypatch.setattr(time, "monotonic", virtual.read)
    monkeypatch.setattr(time, "sleep", virtual.sleep)
    return virtual


def open_sampler(server: ToyServer, **args: Any) -> Sampler:
    """Open a sampler that sends one request at a time, and forget what it has sent."""
    defaults = {"model": "toy", "base_url": server.url(), "tokenizer_backend": "None"}
    limits = {"max_retries": ATTEMPTS, "num_concurrent": 1}
    settings = SamplerSettings("local-completions", defaults | limits | args)
    sampler = load_plugins().create_sampler(settings, None)
    server.requests.clear()
    server.served.clear()
    return sampler


def generate(sampler: Sampler) -> list[Generated]:
    return generate_all(sampler, REQUESTS, SAMPLED)


def count_bodies(bodies: Sequence[Any]) -> list[int]:
    """Return how often each request occurs."""
    return sorted(collections.Counter(map(json.dumps, bodies)).values())


# Failures that pass


def limit_rate(retry_after: str) -> Fault:
    return fail_with_status(429, {"Retry-After": retry_after})


TEMPORARY: dict[str, Fault] = {
    **{f"status {code}": fail_with_status(code) for code in (408, 429, 500, 529)},
    "wait for a number": limit_rate("0.05"),
    "wait until a date": limit_rate("Sun, 06 Nov 1994 08:49:37 GMT"),
    "wait for a word": limit_rate("soon"),
    "wait for no number": limit_rate("nan"),
    "dropped connection": toy_server.drop_connection,
    "half of the body": toy_server.send_half_body,
    "half of the JSON": toy_server.send_half_json,
    "web page": toy_server.send_web_page,
    "other JSON": toy_server.send_other_json,
    "aborted generation": toy_server.abort_generation,
}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("fault", TEMPORARY.values(), ids=TEMPORARY)
def test_only_failed_requests_are_sent_again(server: ToyServer, fault: Fault) -> None:
    sampler = open_sampler(server)
    expected = generate(sampler)
    server.requests.clear()
    server.served.clear()
    server.behaviour.faults.extend([fault, fault, toy_server.answer, fault])
    assert generate(sampler) == expected
    assert count_bodies(server.requests) == [1, 1, 1, 1, 2, 3]
    assert count_bodies(server.served) == [1] * COUNT


def test_silent_server_is_asked_again(server: ToyServer) -> None:
    sampler = open_sampler(server, timeout=1)
    server.hold.clear()
    server.behaviour.faults.append(toy_server.hang)
    answers = generate(sampler)
    assert all(g.text for answer in answers for g in answer.generations)
    assert count_bodies(server.requests)[-1] >= 2


def test_pause_holds_for_concurrent_requests(server: ToyServer, clock: VirtualClock) -> None:
    """One of two requests is asked to wait; the next request of the other waits, too."""
    clock.requests = 2
    sampler = open_sampler(server, num_concurrent=2)
    both = threading.Barrier(2)
    pause_ends, arrivals = [], []

    def refuse(handler: Any) -> None:
        both.wait(20)
        pause_ends.append(clock.read() + PAUSE)
        limit_rate(str(PAUSE))(handler)

    def answer_during_pause(handler: Any) -> None:
        both.wait(20)
        clock.wait_for_request(20)
        toy_server.answer(handler)

    def watch(handler: Any) -> None:
        arrivals.append(clock.read())
        clock.requests = 1  # the other request may have nothing more to send
        toy_server.answer(handler)

    server.behaviour.faults.extend([refuse, answer_during_pause, *[watch] * (COUNT - 1)])
    generate(sampler)
    assert len(arrivals) == COUNT - 1
    assert min(arrivals) >= pause_ends[0]


@pytest.mark.usefixtures("clock")
def test_failure_of_all_attempts_is_no_mistake_of_the_user(server: ToyServer) -> None:
    sampler = open_sampler(server)
    server.behaviour.faults.extend([fail_with_status(503)] * 100)
    with pytest.raises(GapftError, match=server.url()) as failed:
        generate(sampler)
    assert not isinstance(failed.value, UserError)
    assert len(server.requests) == ATTEMPTS, "no other request is sent"


# Refusals


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("fault", "culprit"),
    [
        (fail_with_status(400, message="no such stop string"), "no such stop string"),
        (fail_with_status(403, message="not you"), "not you"),
        (fail_with_status(400, message="half \ud83d here"), "half \ufffd here"),
        (limit_rate("86400"), "86400"),
    ],
)
def test_refused_request_is_not_sent_again(server: ToyServer, fault: Fault, culprit: str) -> None:
    sampler = open_sampler(server)
    server.behaviour.faults.append(fault)
    with pytest.raises(UserError, match=r"\bp0\b") as refused:
        generate(sampler)
    assert culprit in str(refused.value)
    assert str(refused.value).encode()
    assert len(server.requests) == 1


TOO_LONG = [
    (400, "This model's maximum context length is 8 tokens."),
    (400, "The decoder prompt (length 9) is longer than the maximum model length of 8."),
    (400, "The input (9 tokens) is longer than the model's context length (8 tokens)."),
    (422, "the request exceeds the available context size, try increasing it"),
]


@pytest.mark.parametrize(("status", "message"), TOO_LONG)
def test_too_long_prompt_fails_alone(server: ToyServer, status: int, message: str) -> None:
    sampler = open_sampler(server)
    whole = generate(sampler)
    server.behaviour.faults.append(fail_with_status(status, message=message))
    assert generate(sampler) == [beyond_context(REQUESTS[0]), *whole[1:]]


def test_half_surrogate_in_a_response_is_replaced(server: ToyServer) -> None:
    sampler = open_sampler(server)
    server.behaviour.faults.append(toy_server.end_with_half_surrogate)
    assert generate(sampler)[0].generations[0].text == "hi \ufffd"


# Before anything is generated


UNUSABLE: dict[str, tuple[dict[str, Any], dict[str, Any], Sequence[Fault], str]] = {
    "unreachable": ({}, {"base_url": "http://127.0.0.1:9/v1/completions"}, [], "127.0.0.1:9"),
    "wrong path": ({}, {"base_url": "URL/api/completions"}, [], "/api/completions"),
    "unknown model": ({"models": [{"id": "Llama"}]}, {}, [], "Llama"),
    "web page": ({}, {}, [toy_server.send_web_page], "nginx"),
    "other JSON": ({}, {}, [toy_server.send_other_json], "result"),
    "failing": ({}, {}, [fail_with_status(500, message="CUDA out of memory")], "out of memory"),
    "wrong key": ({"key": "right"}, {}, [], "OPENAI_API_KEY"),
    "no certificates": ({}, {"ca_cert_path": __file__}, [], f"ca_cert_path: {__file__}"),
    "odd header": ({}, {"header": {"X-Team": "Zürich"}}, [], "expected ASCII"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_server_is_refused_first(
    server: ToyServer, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    behaviour, args, faults, culprit = UNUSABLE[case]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    for name, value in behaviour.items():
        setattr(server.behaviour, name, value)
    server.behaviour.faults.extend(faults)
    if "base_url" in args:
        args = {"base_url": args["base_url"].replace("URL", server.url(""))}
    with pytest.raises(UserError) as refused:
        open_sampler(server, **args)
    assert culprit in str(refused.value)
    assert "sk-wrong" not in str(refused.value)


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("behaviour", "faults"),
    [
        ({"models": None}, []),
        ({"key": "right"}, []),
        ({"version": "0.32.0"}, []),
        ({}, [limit_rate("0.05"), fail_with_status(503)]),
    ],
    ids=["no list of models", "key", "version", "starting"],
)
def test_usable_server_is_accepted(
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: dict[str, Any],
    faults: Sequence[Fault],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    for name, value in behaviour.items():
        setattr(server.behaviour, name, value)
    server.behaviour.faults.extend(faults)
    sampler = open_sampler(server)
    assert generate(sampler)
    assert "right" not in json.dumps(sampler.describe())


# Proxies

ELSEWHERE = "http://model.example/v1/completions"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


def test_proxy_of_the_environment_is_used(
    server: ToyServer, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", server.url("/").rstrip("/"))
    assert generate(open_sampler(server, base_url=ELSEWHERE))
    assert all(url.startswith("http://model.example/") for url in server.asked)


def test_server_of_this_machine_is_asked_directly(
    server: ToyServer, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    environment.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert generate(open_sampler(server))
    assert generate(open_sampler(server, base_url=server.url().replace("127.0.0.1", "localhost")))


@pytest.mark.parametrize("proxy", ["http://user:secret@127.0.0.1:9", "socks5://user:secret@here:9"])
def test_unusable_proxy_is_refused_without_its_password(
    server: ToyServer, environment: pytest.MonkeyPatch, proxy: str
) -> None:
    environment.setenv("HTTP_PROXY", proxy)
    with pytest.raises(UserError, match=r"model\.example") as refused:
        open_sampler(server, base_url=ELSEWHERE)
    assert "secret" not in str(refused.value)
