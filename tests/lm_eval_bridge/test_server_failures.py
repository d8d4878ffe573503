"""Failing servers: nothing is lost or generated twice, and errors name the cause."""

from __future__ import annotations

import collections
import json
import socket
import threading
import time

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Decoding, Problem
from gapft_harness.hooks.protocols import (
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.server.client import RetryPolicy, find_proxy
from gapft_harness.lm_eval_bridge.samplers.server.replies import parse_retry_after
from gapft_harness.lm_eval_bridge.samplers.server.sampler import ServerSampler
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.stored_files import (
    StoredResponses,
    build_file,
    build_response_records,
)
from tests import toy_server
from tests.asking import generate_all, make_request
from tests.generated import generate_missing, read_response_files
from tests.toy_server import Behaviour, ToyServer

SAMPLED = Decoding(do_sample=True, max_gen_toks=12, temperature=0.9)
QUICK = RetryPolicy(attempts=3, first_wait_s=0.01)
REQUESTS = [make_request(f"p{i}", f"prompt {i}", (0, 1)) for i in range(3)]


@pytest.fixture
def server():
    with ToyServer() as toy:
        yield toy


def build_settings(server: ToyServer, **args) -> SamplerSettings:
    model_args = {"model": "toy", "base_url": server.url(), "tokenizer_backend": "None"} | args
    return SamplerSettings("local-completions", model_args)


def build_sampler(server: ToyServer, patience: RetryPolicy = QUICK, **args) -> ServerSampler:
    sampler = ServerSampler(build_settings(server, **args), None, patience)
    server.requests.clear()
    server.served.clear()
    return sampler


FAULTS = {
    "429": toy_server.fail_with_status(429, {"Retry-After": "0.05"}),
    "429 until a date": toy_server.fail_with_status(
        429, {"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}
    ),
    "500": toy_server.fail_with_status(500),
    "502": toy_server.fail_with_status(502),
    "503": toy_server.fail_with_status(503),
    "504": toy_server.fail_with_status(504),
    "dropped": toy_server.drop_connection,
    "torn body": toy_server.send_half_body,
    "torn JSON": toy_server.send_half_json,
    "garbage": toy_server.send_web_page,
    "other JSON": toy_server.send_other_json,
    "aborted": toy_server.abort_generation,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_retries_only_failed_requests(server, fault):
    sampler = build_sampler(server)
    expected = generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    server.requests.clear()
    server.served.clear()
    server.behaviour.faults.extend([fault, fault])
    assert generate_all(sampler, REQUESTS, SAMPLED, seed=1) == expected
    assert len(server.requests) == 6 + 2
    answered = collections.Counter(json.dumps(body) for body in server.served)
    assert sorted(answered.values()) == [1] * 6


def test_retries_after_timeout(server):
    sampler = build_sampler(server, timeout=2)
    server.requests.clear()
    server.hold.clear()
    server.behaviour.faults.append(toy_server.hang)
    answers = generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    counts = collections.Counter(json.dumps(body) for body in server.requests)
    assert len(counts) == 6
    assert max(counts.values()) >= 2
    assert all(g.text for answer in answers for g in answer.generations)


def test_all_requests_respect_retry_after(server):
    """The limit applies to the server, so no request is sent before it ends."""
    sampler = build_sampler(server, num_concurrent=1)
    opens, early = [], []

    def refuse(handler):
        opens.append(time.monotonic() + 0.4)
        toy_server.fail_with_status(429, {"Retry-After": "0.4"})(handler)

    def watch(handler):
        early.append(time.monotonic() < opens[0])
        toy_server.answer(handler)

    server.behaviour.faults.extend([refuse, watch, watch])
    generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert early == [False, False]


def test_rate_limit_pauses_concurrent_requests(server):
    """The server asks one of two requests to wait; the next request of the other waits too."""
    sampler = build_sampler(server, num_concurrent=2)
    both = threading.Barrier(2)
    opens, early = [], []

    def refuse(handler):
        both.wait(20)
        opens.append(time.monotonic() + 1.5)
        toy_server.fail_with_status(429, {"Retry-After": "1.5"})(handler)

    def answer_after_pause(handler):
        both.wait(20)
        until = time.monotonic() + 20
        while sampler._client._paused_until <= time.monotonic() < until:
            time.sleep(0.01)  # until the client has read the refusal
        toy_server.answer(handler)

    def watch(handler):
        early.append(time.monotonic() < opens[0])
        toy_server.answer(handler)

    server.behaviour.faults.extend([refuse, answer_after_pause, watch, watch])
    generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert early == [False, False]


def test_rejects_excessive_wait(server):
    sampler = build_sampler(server)
    server.behaviour.faults.append(toy_server.fail_with_status(429, {"Retry-After": "86400"}))
    with pytest.raises(GapftError, match=r"status 429 \(it asks to wait 86400 s"):
        generate_all(sampler, REQUESTS, SAMPLED, seed=1)


def test_error_after_retries_names_server_and_counts(server):
    sampler = build_sampler(server, num_concurrent=2)
    server.behaviour.faults.extend([toy_server.fail_with_status(503, message="no worker")] * 100)
    with pytest.raises(GapftError) as failed:
        generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert not isinstance(failed.value, UserError)
    message = str(failed.value)
    assert f"server {server.url()}: 2 of 6 requests" in message
    assert "status 503 (2); the last: no worker" in message
    assert "0 finished and 4 were not sent" in message
    assert len(server.requests) == 2 * 3


def test_does_not_retry_rejected_request(server):
    sampler = build_sampler(server, num_concurrent=1)
    server.behaviour.faults.append(toy_server.fail_with_status(400, message="no such stop string"))
    with pytest.raises(UserError, match=r"problem p0: status 400 \(no such stop string\)"):
        generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "This model's maximum context length is 8 tokens."),
        (
            400,
            "The decoder prompt (length 9) is longer than the maximum model length of 8. Make sure "
            "that `max_model_len` is no smaller than the number of text tokens.",
        ),
        (400, "The input (9 tokens) is longer than the model's context length (8 tokens)."),
        (422, "the request exceeds the available context size, try increasing it"),
    ],
)
def test_too_long_prompt_fails_alone(server, status, message):
    """Rejecting the first request fails its problem only."""
    sampler = build_sampler(server, num_concurrent=1)
    whole = generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    server.requests.clear()
    server.behaviour.faults.append(toy_server.fail_with_status(status, message=message))
    answers = generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert answers == [beyond_context(REQUESTS[0]), *whole[1:]]
    count = sum(len(request.indices) for request in REQUESTS)
    assert len(server.requests) == count + 1, "plus one short prompt as a check"
    server.behaviour.faults.append(toy_server.fail_with_status(status, message=message))
    generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert len(server.requests) == 2 * count + 1, "the check is not repeated"


def test_rejects_max_gen_toks_beyond_context(server):
    sampler = build_sampler(server, num_concurrent=1)
    refusal = toy_server.fail_with_status(400, message="maximum context length is 8")
    server.behaviour.faults.extend([refusal] * 100)
    with pytest.raises(UserError, match=rf"search.max_gen_toks: found {SAMPLED.max_gen_toks}; "):
        generate_all(sampler, REQUESTS, SAMPLED, seed=1)


def test_replaces_lone_surrogate_in_response(server, tmp_path):
    sampler = build_sampler(server, num_concurrent=1)
    server.behaviour.faults.append(toy_server.end_with_half_surrogate)
    answers = generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert answers[0].generations[0].text == "hi \ufffd"
    path = tmp_path / "part.jsonl"
    path.write_bytes(build_file(build_response_records(REQUESTS, answers)))
    responses = StoredResponses()
    responses.add(path)
    [entry] = responses.read(["p0"])
    assert entry.responses[0].text == "hi \ufffd"


def test_replaces_lone_surrogate_in_error(server):
    sampler = build_sampler(server, num_concurrent=1)
    server.behaviour.faults.append(toy_server.fail_with_status(400, message="no \ud83d here"))
    with pytest.raises(UserError, match="no \ufffd here") as refused:
        generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    str(refused.value).encode()


def test_resumes_from_stored_chunks(server, tmp_path):
    problems = [Problem(f"p{i}", "x" * (9 - i), "gold", {}) for i in range(6)]
    phases = [DecodePhase("samples", SAMPLED, (0, 1, 2))]

    def run() -> StoredResponses:
        return generate_missing(tmp_path, problems, phases, build_sampler(server))

    down = [toy_server.fail_with_status(500)] * 100
    checks, two_chunks = [toy_server.answer] * 2, [toy_server.answer] * 12
    server.behaviour.faults.extend(checks + two_chunks + down)
    with pytest.raises(GapftError, match="All earlier chunks are kept"):
        run()
    stored_files = read_response_files(tmp_path)
    assert len(stored_files) == 2
    server.behaviour.faults.clear()
    responses = run()
    assert len(server.requests) == 2 * 3
    assert stored_files.items() <= read_response_files(tmp_path).items()
    entries = responses.read([problem.id for problem in problems])
    assert [len(entry.responses) for entry in entries] == [3] * 6


# Checks before anything starts


def test_rejects_unreachable_server(server):
    with socket.socket() as bound_socket:  # reserves the port without listening
        bound_socket.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound_socket.getsockname()[1]}/v1/completions"
        message = rf"server {url}: cannot be reached .*; start the server"
        with pytest.raises(UserError, match=message):
            ServerSampler(build_settings(server, base_url=url), None, QUICK)


def test_rejects_wrong_path(server):
    url = server.url("/api/completions")
    with pytest.raises(UserError, match=r"path or model not found.*http://HOST:8000/v1/compl"):
        ServerSampler(build_settings(server, base_url=url), None, QUICK)


def test_unknown_model_lists_served_models(server):
    server.behaviour.models = [{"id": "Qwen/Qwen2.5-7B"}, {"id": "Llama"}]
    with pytest.raises(UserError, match=r"unknown model 'Qwen2\.5-7B'; .*known: Llama"):
        ServerSampler(build_settings(server, model="Qwen2.5-7B"), None, QUICK)


def test_accepts_server_without_model_list(server):
    server.behaviour.models = None
    assert generate_all(ServerSampler(build_settings(server), None, QUICK), REQUESTS, SAMPLED, 0)


@pytest.mark.parametrize("fault", [toy_server.send_web_page, toy_server.send_other_json])
def test_rejects_server_with_different_api(server, fault):
    server.behaviour.faults.append(fault)
    with pytest.raises(UserError, match=r"has not OpenAI's form \(found"):
        ServerSampler(build_settings(server), None, QUICK)


def test_never_shows_api_key(server, monkeypatch):
    server.behaviour.key = "right"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"refuses the key .*environment variable OPENAI_API_KEY"):
        ServerSampler(build_settings(server), None, QUICK)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    with pytest.raises(UserError, match=r"refuses the key \(bad key \*\*\*\)"):
        ServerSampler(build_settings(server), None, QUICK)
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    assert generate_all(ServerSampler(build_settings(server), None, QUICK), REQUESTS, SAMPLED, 0)


def test_waits_for_starting_server(server):
    server.behaviour.faults.extend([toy_server.fail_with_status(503, {"Retry-After": "0.05"})] * 2)
    assert ServerSampler(build_settings(server), None, QUICK)


def test_reports_failed_first_request(server):
    server.behaviour.faults.append(toy_server.fail_with_status(500, message="CUDA out of memory"))
    with pytest.raises(UserError, match=r"failed: status 500 \(CUDA out of memory\)"):
        ServerSampler(build_settings(server), None, QUICK)


def test_rejects_tokenizer_of_different_model(server, tmp_path):
    from tests.kit.tiny_models import write_byte_llama

    server.behaviour = Behaviour(extended=True, encode=lambda text: [3 + ord(c) % 50 for c in text])
    wrong = build_settings(
        server, tokenizer=str(write_byte_llama(tmp_path)), tokenizer_backend="huggingface"
    )
    with pytest.raises(UserError, match=r"set model\.args\.tokenizer to that of the served model"):
        ServerSampler(wrong, None, QUICK)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"base_url": None}, "base_url: found None; expected the complete URL"),
        ({"base_url": "localhost:8000"}, "base_url: found 'localhost:8000'"),
        (
            {"base_url": "http://h:8000/v1"},
            "expected the complete URL of the server's /completions",
        ),
        ({"base_url": "http://h/v1/chat/completions"}, "base_url: found"),
        ({"model": None}, "model: found None; expected the model's name"),
        ({"num_concurent": 4}, "unknown argument 'num_concurent'; did you mean 'num_concurrent'"),
        ({"num_concurrent": 0}, "num_concurrent: found 0; expected a whole number from 1"),
        ({"timeout": "long"}, "timeout: found 'long'"),
        ({"seed": 1}, "'seed' is not supported .*search.seed"),
        ({"max_length": True}, "max_length: found True"),
        ({"tokenizer_backend": "tiktoken"}, "tokenizer_backend: found 'tiktoken'"),
        ({"ca_cert_path": "/no/such.pem"}, "ca_cert_path: file"),
        ({"header": {"X-Api-Key": "k"}}, r"header\.X-Api-Key contains a user name or a key"),
    ],
)
def test_rejects_bad_arguments(server, args, message):
    with pytest.raises(UserError, match=message):
        ServerSampler(build_settings(server, **args), None, QUICK)
    assert server.requests == []


def test_chat_server_requires_chat_prompts(server):
    chat = build_settings(server, base_url=server.url("/v1/chat/completions"))
    chat = SamplerSettings("local-chat-completions", chat.model_args)
    with pytest.raises(UserError, match=r"model\.chat_template: found false"):
        ServerSampler(chat, None, QUICK)


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("soon", 0.0), ("nan", 0.0)]
)
def test_parses_retry_after(header, seconds):
    assert parse_retry_after(header) == seconds


PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def environment(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


def build_proxied_settings(
    server: ToyServer, url: str = "http://model.example/v1/completions"
) -> SamplerSettings:
    """Build settings for a server that is reachable only through a proxy."""
    return build_settings(server, base_url=url)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_uses_proxy_of_environment(server, environment, name):
    environment.setenv(name, server.url("/").rstrip("/"))
    sampler = ServerSampler(build_proxied_settings(server), None, QUICK)
    answers = generate_all(sampler, REQUESTS, SAMPLED, seed=1)
    assert [len(answer.generations) for answer in answers] == [2] * 3
    assert len(server.asked) >= 8  # models, version, a probe and the requests
    assert all(url.startswith("http://model.example/") for url in server.asked)


@pytest.mark.parametrize("no_proxy", ["model.example", ".example", "other.test,model.example", "*"])
def test_no_proxy_hosts_skip_proxy(server, environment, no_proxy):
    environment.setenv("HTTP_PROXY", server.url("/").rstrip("/"))
    environment.setenv("NO_PROXY", no_proxy)
    with pytest.raises(UserError, match=r"model\.example.*cannot be reached"):
        ServerSampler(build_proxied_settings(server), None, QUICK)
    assert server.asked == []


def test_local_hosts_skip_proxy(server, environment):
    environment.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    environment.setenv("ALL_PROXY", "http://127.0.0.1:9")
    generate_all(build_sampler(server), REQUESTS, SAMPLED, seed=1)
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "[::1]", "api.localhost", "0.0.0.0"):
        assert find_proxy(f"http://{host}:8000/v1/completions") is None
        assert find_proxy(f"https://{host}/v1/completions") is None
    assert find_proxy("http://localhost.example/v1") == "http://127.0.0.1:9"


def test_names_unusable_proxy(server, environment):
    environment.setenv("HTTP_PROXY", "http://user:geheim@127.0.0.1:9")
    with pytest.raises(UserError, match="HTTP_PROXY") as caught:
        ServerSampler(build_proxied_settings(server), None, QUICK)
    assert "127.0.0.1:9" in str(caught.value)
    assert "geheim" not in str(caught.value)
    environment.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(UserError, match="NO_PROXY"):
        ServerSampler(build_proxied_settings(server), None, QUICK)
    environment.setenv("HTTP_PROXY", "127.0.0.1:9")
    assert find_proxy("http://model.example/v1") == "http://127.0.0.1:9"
    environment.setenv("HTTPS_PROXY", server.url("/"))
    with pytest.raises(UserError, match="proxy"):  # the proxy does not support CONNECT
        ServerSampler(
            build_proxied_settings(server, "https://model.example/v1/completions"), None, QUICK
        )
