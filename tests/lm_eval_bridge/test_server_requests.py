"""What is sent to a server: settings, prompts and adapters; and reasoning that it returns apart."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from gapft_harness.api import (
    Adapter,
    Arm,
    Decoding,
    Generation,
    SamplerSettings,
    UserError,
)
from gapft_harness.core.records import STOP_STRING
from gapft_harness.lm_eval_bridge.samplers.server.sampler import ServerSampler
from tests.asking import generate_all, make_request
from tests.kit.samplers import build_behaviour
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_adapter, write_byte_llama
from tests.toy_server import LETTERS, Behaviour, ToyServer, reason

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=20)
SAMPLED = Decoding(do_sample=True, max_gen_toks=20, temperature=0.9, top_p=0.95)
ONE = [make_request("p0", "Why?", (0,))]
MANY = [make_request(f"p{i}", f"prompt {i}", range(8)) for i in range(3)]


@pytest.fixture
def server() -> Iterator[ToyServer]:
    with ToyServer() as toy:
        yield toy


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("model"), chat_template=CHAT_TEMPLATE)


@pytest.fixture
def extended(model: Path) -> Behaviour:
    """A server that accepts vLLM's fields and returns ids."""
    return build_behaviour(AutoTokenizer.from_pretrained(model), extended=True)


def open_sampler(
    server: ToyServer, chat: bool = False, adapter: Adapter | None = None, **args: Any
) -> ServerSampler:
    name = "chat-completions" if chat else "completions"
    url = server.url(f"/v1/{name.replace('-', '/')}")
    defaults = {"model": "toy", "base_url": url, "max_retries": 2, "tokenizer_backend": "None"}
    settings = SamplerSettings(f"local-{name}", defaults | args, chat_template=chat)
    return ServerSampler(settings, adapter)


def with_tokenizer(model: Path) -> dict[str, Any]:
    return {"tokenizer": str(model), "tokenizer_backend": "huggingface"}


def send(sampler: ServerSampler, server: ToyServer, decoding: Decoding = SAMPLED) -> dict[str, Any]:
    """Send one request; return what the server got."""
    generate_all(sampler, ONE, decoding)
    return server.requests[-1]


def test_decoding_is_sent(server: ToyServer, model: Path, extended: Behaviour) -> None:
    stops = tuple("123456")
    for chat in (False, True):  # lm-eval's chat model drops all stop strings after the fourth
        plain = open_sampler(server, chat)
        greedy = send(plain, server, replace(GREEDY_DECODE, until=stops))
        assert (greedy["temperature"], greedy["stop"]) == (0, [*stops])
        sampled = send(plain, server)
        assert (sampled["temperature"], sampled["top_p"], sampled["max_tokens"]) == (0.9, 0.95, 20)
        assert not {"stop", "top_k"} & sampled.keys()
        assert 0 <= sampled["seed"] < 2**31
    server.behaviour = extended
    sampler = open_sampler(server, **with_tokenizer(model))
    sent = send(sampler, server, replace(SAMPLED, top_k=7, until=("<s>",)))
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (7, 0.0, 1.0)
    assert sent["stop_token_ids"] == [1]
    assert send(sampler, server)["top_k"] == -1


def test_prompt_is_sent_as_ids_text_or_turns(server: ToyServer, model: Path) -> None:
    as_ids = open_sampler(server, **with_tokenizer(model))
    assert send(as_ids, server)["prompt"] == AutoTokenizer.from_pretrained(model)("Why?").input_ids
    as_text = open_sampler(server, **with_tokenizer(model), tokenized_requests=False)
    assert send(as_text, server)["prompt"] == "Why?"
    [turn] = send(open_sampler(server, chat=True), server)["messages"]
    assert (turn["role"], turn["content"]) == ("user", "Why?")


def test_chat_may_continue_the_last_turn(server: ToyServer, extended: Behaviour) -> None:
    """OpenAI's own servers close the last turn, so they get no such chat."""
    turns = ({"role": "user", "content": "Why?"}, {"role": "assistant", "content": "It is"})
    begun = [make_request("p0", "Why? It is", (0,), turns=turns)]
    sampler = open_sampler(server, chat=True)
    server.requests.clear()
    with pytest.raises(UserError, match="gen_prefix"):
        generate_all(sampler, begun, SAMPLED)
    assert server.requests == []
    server.behaviour = extended
    generate_all(open_sampler(server, chat=True), begun, SAMPLED)
    sent = server.requests[-1]
    assert sent["messages"] == [*turns]
    assert (sent["add_generation_prompt"], sent["continue_final_message"]) == (False, True)


def test_template_arguments_need_an_extended_server(server: ToyServer, extended: Behaviour) -> None:
    thinking = {"chat_template_args": {"enable_thinking": False}}
    with pytest.raises(UserError, match="chat_template_args"):
        open_sampler(server, chat=True, **thinking)
    server.behaviour = extended
    sent = send(open_sampler(server, chat=True, **thinking), server)
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


def test_tokenizer_of_another_model_is_refused(server: ToyServer, model: Path) -> None:
    wrong = Behaviour(extended=True, encode=lambda text: [3 + ord(c) % 50 for c in text])
    server.behaviour = wrong
    with pytest.raises(UserError, match=r"model\.args\.tokenizer"):
        open_sampler(server, **with_tokenizer(model))


# Adapters


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    return Adapter(Arm("gapft", 13), str(write_byte_adapter(model, tmp_path_factory.mktemp("arm"))))


def test_samplers_of_one_adapter_load_separately(
    server: ToyServer, model: Path, adapter: Adapter
) -> None:
    """The audit and the trained problems of an arm are decoded concurrently."""
    server.behaviour.loads_adapters = True
    server.loaded = {"gapft:gapft-seed13:0123456789abcdef": adapter.path}  # of an older run
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(
            lambda _: open_sampler(server, adapter=adapter, pretrained=str(model)), range(2)
        )
    assert len(server.loaded) == 3
    assert first.describe()["adapter"] == second.describe()["adapter"]
    expected = generate_all(second, ONE, GREEDY_DECODE)
    first.close()
    assert generate_all(second, ONE, GREEDY_DECODE) == expected
    second.close()
    assert len(server.loaded) == 1


def test_preloaded_adapter_is_used_and_kept(
    server: ToyServer, model: Path, adapter: Adapter
) -> None:
    server.loaded = {"gapft-seed13": adapter.path}
    sampler = open_sampler(server, adapter=adapter, pretrained=str(model))
    assert send(sampler, server)["model"] == "gapft-seed13"
    sampler.close()
    assert list(server.loaded) == ["gapft-seed13"]


# Reasoning apart from the text


@pytest.fixture(params=["reasoning_content", "reasoning"])
def reasoning_server(request: pytest.FixtureRequest, server: ToyServer) -> ToyServer:
    server.behaviour.reasoning = request.param
    return server


def list_generations(sampler: ServerSampler, decoding: Decoding = SAMPLED) -> list[Generation]:
    answers = generate_all(sampler, MANY, decoding)
    return [generation for answer in answers for generation in answer.generations]


def test_separate_reasoning_is_stored_apart(reasoning_server: ToyServer) -> None:
    sampler = open_sampler(reasoning_server, chat=True)
    for generation in list_generations(sampler):
        assert generation.reasoning == reason(generation.text)
        assert len(generation.text) == LETTERS
        assert (generation.token_ids, generation.tokens_from) == ((), "none")
    for generation in list_generations(sampler, replace(SAMPLED, max_gen_toks=8)):
        assert (generation.text, generation.finish_reason) == ("", "length")
        assert len(generation.reasoning) == 8


@pytest.mark.parametrize("stop", [(), ("e",)])
def test_exact_ids_include_separate_reasoning(
    reasoning_server: ToyServer, model: Path, extended: Behaviour, stop: tuple[str, ...]
) -> None:
    extended.reasoning = reasoning_server.behaviour.reasoning
    reasoning_server.behaviour = extended
    sampler = open_sampler(reasoning_server, chat=True, **with_tokenizer(model))
    generations = list_generations(sampler, replace(SAMPLED, until=stop))
    assert any(g.finish_reason == STOP_STRING for g in generations) == bool(stop)
    encode = AutoTokenizer.from_pretrained(model)
    for generation in generations:
        if generation.text:
            written = f"<think>{generation.reasoning}</think>{generation.text}"
            assert list(generation.token_ids) == encode(written).input_ids
            assert generation.tokens_from == "generator"
