"""Servers as samplers: seeds, order, prompts, token ids and adapters, over real HTTP."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import STOP_STRING, Adapter, Arm, Attempt, Decoding
from gapft_harness.hooks.protocols import Request, SamplerSettings, beyond_context
from gapft_harness.lm_eval_bridge.samplers.server.sampler import ServerSampler, find_model
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_adapter, write_byte_llama
from tests.toy_server import Behaviour, ToyServer, answer, reason

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=12)
SAMPLED = Decoding(do_sample=True, max_gen_toks=12, temperature=0.9, top_p=0.95)
K = 8


@pytest.fixture
def server():
    with ToyServer() as toy:
        yield toy


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_byte_llama(tmp_path_factory.mktemp("byte-llama"), chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def encode(model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return lambda text: tokenizer(text, add_special_tokens=False).input_ids


def build_settings(server: ToyServer, chat: bool = False, **args) -> SamplerSettings:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    model_args = {"model": "toy", "base_url": server.url(path), "tokenizer_backend": "None"} | args
    name = "local-chat-completions" if chat else "local-completions"
    return SamplerSettings(name, model_args, chat_template=chat)


def build_tokenizer_settings(
    server: ToyServer, model, chat: bool = False, **args
) -> SamplerSettings:
    return build_settings(
        server, chat, tokenizer=str(model), tokenizer_backend="huggingface", **args
    )


def build_requests(prompts=("one", "two", "three"), k: int = K) -> list[Request]:
    return [make_request(f"p{i}", prompt, tuple(range(k))) for i, prompt in enumerate(prompts)]


def get_seed(body: dict[str, Any]) -> int:
    return body["seed"]


def list_texts(answers) -> list[list[str]]:
    return [[g.text for g in answer.generations] for answer in answers]


# Seeds


def test_samples_have_separate_seeds(server):
    sampler = ServerSampler(build_settings(server), None)
    first = generate_all(sampler, build_requests(), SAMPLED, seed=5)
    assert all(len(set(row)) == K for row in list_texts(first))
    assert all(0 <= request["seed"] < 2**31 for request in server.requests if "seed" in request)
    assert generate_all(sampler, build_requests(), SAMPLED, seed=5) == first
    assert not {t for row in list_texts(first) for t in row} & {
        t
        for row in list_texts(generate_all(sampler, build_requests(), SAMPLED, seed=6))
        for t in row
    }


def test_equal_prompts_get_separate_samples(server):
    sampler = ServerSampler(build_settings(server), None)
    rows = list_texts(generate_all(sampler, build_requests(("same", "same")), SAMPLED, seed=5))
    assert len({text for row in rows for text in row}) == 2 * K


def test_sample_does_not_depend_on_other_requests(server):
    sampler = ServerSampler(build_settings(server), None)
    [alone] = generate_all(sampler, [make_request("p1", "two", (3,))], SAMPLED, seed=5)
    among = generate_all(sampler, build_requests(), SAMPLED, seed=5)
    assert alone.generations[0] == among[1].generations[3]


# Requests


def test_sends_requests_concurrently_in_order(server):
    """Four requests wait for each other in the server, so four must run concurrently."""
    one_by_one = ServerSampler(build_settings(server, num_concurrent=1), None)
    expected = generate_all(one_by_one, build_requests(), SAMPLED, seed=5)
    assert server.most_parallel == 1
    four = ServerSampler(build_settings(server, num_concurrent=4), None)
    barrier = threading.Barrier(4)

    def answer_together(handler):
        barrier.wait(timeout=20)
        answer(handler)

    server.behaviour.faults.extend([answer_together] * 4)
    assert generate_all(four, build_requests(), SAMPLED, seed=5) == expected
    assert server.most_parallel == 4


def test_sends_decoding_settings(server):
    sampler = ServerSampler(build_settings(server), None)
    server.requests.clear()
    until = ("\n", "a", "b", "c", "d", "e")
    generate_all(sampler, build_requests(("x",), 1), replace(GREEDY_DECODE, until=until), 0)
    generate_all(sampler, build_requests(("x",), 1), SAMPLED, 0)
    greedy, sampled = server.requests
    assert greedy["temperature"] == 0
    assert greedy["stop"] == list(until)
    assert "stop" not in sampled
    assert (sampled["temperature"], sampled["top_p"], sampled["max_tokens"]) == (0.9, 0.95, 12)
    assert "top_k" not in sampled


def test_sends_all_chat_stop_strings(server):
    sampler = ServerSampler(build_settings(server, chat=True), None)
    generate_all(sampler, build_requests(("x",), 1), replace(SAMPLED, until=tuple("123456")), 0)
    assert server.requests[-1]["stop"] == list("123456")


def test_extended_server_gets_all_settings(server, encode, model):
    server.behaviour = Behaviour(extended=True, encode=encode)
    sampler = ServerSampler(build_tokenizer_settings(server, model), None)
    generate_all(sampler, build_requests(("x",), 1), replace(SAMPLED, top_k=7, until=("<s>",)), 0)
    sent = server.requests[-1]
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (7, 0.0, 1.0)
    assert sent["stop_token_ids"] == [1]
    generate_all(sampler, build_requests(("x",), 1), SAMPLED, 0)
    assert server.requests[-1]["top_k"] == -1


def test_rejects_unsupported_top_k(server):
    sampler = ServerSampler(build_settings(server), None)
    server.requests.clear()
    with pytest.raises(UserError, match=r"search\.top_k: found 7"):
        generate_all(sampler, build_requests(), replace(SAMPLED, top_k=7), 0)
    assert server.requests == []


# Prompts


ATTEMPTS = (Attempt("One.", (4,), "stop", "No."), Attempt("Two.", (5,), "stop", "No!"))


def test_sends_chat_as_turns(server):
    chat = replace(build_settings(server, chat=True), system_instruction="Be brief.")
    generate_all(ServerSampler(chat, None), [make_request("a", "Why?", (0,), ATTEMPTS)], SAMPLED, 0)
    assert [(turn["role"], turn["content"]) for turn in server.requests[-1]["messages"]] == [
        ("system", "Be brief."),
        ("user", "Why?"),
        ("assistant", "One."),
        ("user", "No."),
        ("assistant", "Two."),
        ("user", "No!"),
    ]


OPEN_TURNS = (
    *({"role": "user", "content": "One?"}, {"role": "assistant", "content": "It is one."}),
    *({"role": "user", "content": "Why?"}, {"role": "assistant", "content": "It is"}),
)


def test_continues_or_rejects_open_turn(server, model, encode):
    open_requests = [make_request("a", "Why? It is", (0,), turns=OPEN_TURNS)]
    completion = replace(build_tokenizer_settings(server, model), chat_template=True)
    generate_all(ServerSampler(completion, None), open_requests, SAMPLED)
    rendered = "<user>One?\n<assistant>It is one.\n<user>Why?\n<assistant>It is"
    assert server.requests[-1]["prompt"] == [1, *encode(rendered)]
    chat = build_settings(server, chat=True)
    sampler = ServerSampler(chat, None)
    count = len(server.requests)
    with pytest.raises(UserError, match="gen_prefix"):
        generate_all(sampler, open_requests, SAMPLED)
    assert len(server.requests) == count
    server.behaviour = Behaviour(extended=True, encode=encode)
    generate_all(ServerSampler(chat, None), open_requests, SAMPLED)
    sent = server.requests[-1]
    assert sent["messages"] == [*OPEN_TURNS]
    assert (sent["add_generation_prompt"], sent["continue_final_message"]) == (False, True)


def test_sends_completion_as_token_ids(server, model, encode):
    chat = replace(build_tokenizer_settings(server, model), chat_template=True)
    [got] = generate_all(
        ServerSampler(chat, None), [make_request("a", "Why?", (0,), ATTEMPTS[:1])], SAMPLED, 0
    )
    rendered = "<user>Why?\n<assistant>One.\n<user>No.\n<assistant>"
    assert server.requests[-1]["prompt"] == [1, *encode(rendered)]
    assert got.prompt_ids == (1, *encode(rendered))


def test_sends_or_rejects_start_tokens(server, model, encode):
    two = replace(build_tokenizer_settings(server, model), start_tokens=2)
    [got] = generate_all(ServerSampler(two, None), [make_request("a", "<s>Why?", (0,))], SAMPLED, 0)
    assert server.requests[-1]["prompt"] == [1, 1, *encode("Why?")]
    assert got.prompt_ids == (1, 1, *encode("Why?"))
    as_text = replace(
        build_tokenizer_settings(server, model, tokenized_requests=False), start_tokens=2
    )
    for unsupported in (as_text, replace(build_settings(server), start_tokens=2)):
        with pytest.raises(UserError, match=r"start_tokens: found 2, but prompts are sent as text"):
            ServerSampler(unsupported, None)
        with pytest.raises(UserError, match=r"remove tokenizer_backend and tokenized_requests"):
            find_model(unsupported)


def test_sends_completion_as_text(server, model):
    plain = build_tokenizer_settings(server, model, tokenized_requests=False)
    generate_all(
        ServerSampler(plain, None), [make_request("a", "Why?", (0,), ATTEMPTS[:1])], SAMPLED, 0
    )
    assert server.requests[-1]["prompt"] == "Why?One.\n\nNo.\n\n"


def test_ignores_arguments_of_local_models(server, model):
    requests = build_requests(("x",), 2)
    plain = ServerSampler(build_tokenizer_settings(server, model), None)
    hf_arguments = {"dtype": "bfloat16", "device": "cpu", "batch_size": 64}
    with_hf_arguments = ServerSampler(build_tokenizer_settings(server, model, **hf_arguments), None)
    server.requests.clear()
    assert generate_all(plain, requests, SAMPLED, 0) == generate_all(
        with_hf_arguments, requests, SAMPLED, 0
    )
    first, second = server.requests[:2], server.requests[2:]  # a pair may arrive in either order
    assert sorted(first, key=get_seed) == sorted(second, key=get_seed)


def test_does_not_send_prompt_beyond_context(server, model):
    server.behaviour.models = [{"id": "toy", "max_model_len": 32}]
    sampler = ServerSampler(build_tokenizer_settings(server, model), None)
    [alone] = generate_all(sampler, build_requests(("x" * 20,), 1), SAMPLED, 0)
    server.requests.clear()
    requests = build_requests(("x" * 20, "y" * 21), 1)
    assert generate_all(sampler, requests, SAMPLED, 0) == [alone, beyond_context(requests[1])]
    assert len(server.requests) == 1
    with pytest.raises(UserError, match="problem p0: empty prompt"):
        generate_all(sampler, build_requests(("",), 1), SAMPLED, 0)


# Token ids and ends


def test_keeps_server_token_ids(server, model, encode):
    server.behaviour = Behaviour(extended=True, encode=encode)
    sampler = ServerSampler(build_tokenizer_settings(server, model), None)
    assert sampler.describe()["token_ids"] == "generator"
    [got] = generate_all(sampler, build_requests(("x",), 4), SAMPLED, 0)
    for generation in got.generations:
        assert generation.token_ids == tuple(encode(generation.text))
        assert (generation.finish_reason, generation.tokens_from) == ("stop", "generator")
    [got] = generate_all(sampler, build_requests(("x",), 4), replace(SAMPLED, max_gen_toks=5), 0)
    for generation in got.generations:
        assert len(generation.token_ids) == 5
        assert generation.finish_reason == "length"


def test_stop_string_cuts_server_token_ids(server, model, encode):
    server.behaviour = Behaviour(extended=True, encode=encode)
    sampler = ServerSampler(build_tokenizer_settings(server, model), None)
    [free] = generate_all(sampler, build_requests(("x",), 1), GREEDY_DECODE, 0)
    whole = free.generations[0].text
    [got] = generate_all(
        sampler, build_requests(("x",), 1), replace(GREEDY_DECODE, until=(whole[4:6],)), 0
    )
    [cut] = got.generations
    assert cut.text == whole.split(whole[4:6])[0] != whole
    assert cut.token_ids == tuple(encode(cut.text))
    assert cut.tokens_from == "generator"
    assert (cut.finish_reason, cut.stop_string) == (STOP_STRING, whole[4:6])


def test_retokenizes_text_without_server_ids(server, model, encode):
    sampler = ServerSampler(build_tokenizer_settings(server, model), None)
    [got] = generate_all(sampler, build_requests(("x",), 2), SAMPLED, 0)
    for generation in got.generations:
        assert generation.token_ids == tuple(encode(generation.text))
        assert generation.tokens_from == "retokenized"
    [bare] = generate_all(
        ServerSampler(build_settings(server), None), build_requests(("x",), 1), SAMPLED, 0
    )
    assert bare.prompt_ids == bare.generations[0].token_ids == ()
    assert bare.generations[0].tokens_from == "none"


def test_reads_chat_prompt_ids_from_server(server, model, encode):
    server.behaviour = Behaviour(extended=True, encode=encode)
    sampler = ServerSampler(build_tokenizer_settings(server, model, chat=True), None)
    [got] = generate_all(sampler, build_requests(("x",), 1), SAMPLED, 0)
    assert got.prompt_ids == tuple(encode(json.dumps(server.requests[-1]["messages"])))


# Description


def test_description_omits_api_key(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    server.behaviour.key = "sk-very-secret"
    server.behaviour.version = "0.32.0"
    facts = ServerSampler(build_settings(server, num_concurrent=3), None).describe()
    assert facts["url"] == server.url()
    assert facts["model"] == "toy"
    assert facts["server"]["version"] == "0.32.0"
    assert facts["num_concurrent"] == 3
    assert "secret" not in json.dumps(facts)


# Adapters


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory) -> Adapter:
    return Adapter(Arm("gapft", 13), str(write_byte_adapter(model, tmp_path_factory.mktemp("arm"))))


def test_loads_and_unloads_adapter(server, model, adapter):
    server.behaviour.loads_adapters = True
    sampler = ServerSampler(build_settings(server, pretrained=str(model)), adapter)
    [(name, path)] = server.loaded.items()
    assert name.startswith("gapft:gapft-seed13:")
    assert path == adapter.path
    generate_all(sampler, build_requests(("x",), 1), GREEDY_DECODE, 0)
    assert server.requests[-1]["model"] == name
    assert sampler.describe()["adapter"]["arm"] == "gapft-seed13"
    sampler.close()
    assert server.loaded == {}


def test_samplers_of_one_adapter_load_separately(server, model, adapter):
    """The audit and the trained problems of an arm are decoded concurrently."""
    server.behaviour.loads_adapters = True
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(
            lambda _: ServerSampler(build_settings(server, pretrained=str(model)), adapter),
            range(2),
        )
    assert len(server.loaded) == 2
    assert first.describe()["adapter"] == second.describe()["adapter"]
    expected = generate_all(second, build_requests(("x",), 1), GREEDY_DECODE, 0)
    first.close()
    assert generate_all(second, build_requests(("x",), 1), GREEDY_DECODE, 0) == expected
    third = ServerSampler(build_settings(server, pretrained=str(model)), adapter)
    second.close()
    assert generate_all(third, build_requests(("x",), 1), GREEDY_DECODE, 0) == expected
    third.close()
    assert server.loaded == {}


def test_uses_preloaded_adapter(server, model, adapter):
    server.loaded = {"gapft-seed13": adapter.path}
    sampler = ServerSampler(build_settings(server, pretrained=str(model)), adapter)
    generate_all(sampler, build_requests(("x",), 1), GREEDY_DECODE, 0)
    assert server.requests[-1]["model"] == "gapft-seed13"
    sampler.close()
    assert list(server.loaded) == ["gapft-seed13"]


def test_does_not_use_older_adapter_weights(server, model, adapter):
    server.behaviour.loads_adapters = True
    server.loaded = {"gapft:gapft-seed13:0123456789abcdef": adapter.path}
    sampler = ServerSampler(build_settings(server, pretrained=str(model)), adapter)
    assert sampler.describe()["model"] not in ("toy", "gapft:gapft-seed13:0123456789abcdef")


def test_rejects_server_without_adapter_loading(server, model, adapter):
    with pytest.raises(UserError, match="cannot serve the trained adapter") as refused:
        ServerSampler(build_settings(server, pretrained=str(model)), adapter)
    assert f"--lora-modules gapft-seed13={adapter.path}" in str(refused.value)
    assert "--max-lora-rank 8" in str(refused.value)


def test_temporary_adapter_needs_runtime_loading(server, model, adapter, tmp_path):
    folder = shutil.copytree(adapter.path, tmp_path / ".gapft-seed13-0.5")
    temporary = replace(adapter, path=str(folder))
    with pytest.raises(UserError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True") as refused:
        ServerSampler(build_settings(server, pretrained=str(model)), temporary)
    assert "--lora-modules" not in str(refused.value)


def test_rejects_adapter_of_different_model(server, adapter, tmp_path):
    server.behaviour.loads_adapters = True
    other = write_byte_llama(tmp_path, hidden=64)
    with pytest.raises(UserError, match="does not fit the model"):
        ServerSampler(build_settings(server, pretrained=str(other)), adapter)
    assert server.loaded == {}


def test_rejects_unsupported_template_arguments(server):
    thinking = build_settings(server, chat=True, chat_template_args={"enable_thinking": False})
    with pytest.raises(UserError, match="chat_template_args"):
        ServerSampler(thinking, None)
    server.behaviour.extended = True
    generate_all(ServerSampler(thinking, None), build_requests(("x",), 1), SAMPLED, 0)
    assert server.requests[-1]["chat_template_kwargs"] == {"enable_thinking": False}


# Reasoning apart from the text


@pytest.fixture(params=["reasoning_content", "reasoning"])
def reasoning_server(request, server):
    server.behaviour.reasoning = request.param
    return server


def test_separate_reasoning_is_stored_apart(reasoning_server):
    sampler = ServerSampler(build_settings(reasoning_server, chat=True), None)
    for generated in generate_all(sampler, build_requests(), SAMPLED, seed=5):
        for generation in generated.generations:
            assert generation.reasoning == reason(generation.text)
            assert len(generation.text) == 12
            assert (generation.token_ids, generation.tokens_from) == ((), "none")


def test_generation_cut_while_reasoning_has_no_text(reasoning_server):
    sampler = ServerSampler(build_settings(reasoning_server, chat=True), None)
    cut = replace(SAMPLED, max_gen_toks=8)
    [generated] = generate_all(sampler, build_requests(("x",), 1), cut, seed=5)
    [generation] = generated.generations
    assert (generation.text, generation.finish_reason) == ("", "length")
    assert len(generation.reasoning) == 8


@pytest.mark.parametrize("stop", [(), ("e",)])
def test_exact_ids_include_separate_reasoning(reasoning_server, model, encode, stop):
    reasoning_server.behaviour.extended = True
    reasoning_server.behaviour.encode = encode
    sampler = ServerSampler(build_tokenizer_settings(reasoning_server, model, chat=True), None)
    decoding = replace(SAMPLED, until=stop)
    prompts = tuple(f"prompt {number}" for number in range(12))
    answers = generate_all(sampler, build_requests(prompts), decoding, seed=5)
    generations = [generation for each in answers for generation in each.generations]
    stopped = [g for g in generations if g.finish_reason == STOP_STRING]
    assert bool(stopped) == bool(stop)
    for generation in generations:
        if not generation.text:
            continue
        assert generation.tokens_from == "generator"
        written = f"<think>{generation.reasoning}</think>{generation.text}"
        assert list(generation.token_ids) == encode(written)


def test_inexact_ids_include_separate_reasoning(reasoning_server, model, encode):
    sampler = ServerSampler(build_tokenizer_settings(reasoning_server, model, chat=True), None)
    [generated] = generate_all(sampler, build_requests(("x",), 1), SAMPLED, seed=5)
    [generation] = generated.generations
    assert generation.tokens_from == "retokenized"
    assert list(generation.token_ids) == encode(generation.reasoning) + encode(generation.text)


# Reasoning that the prompt opens

OPENS_THOUGHT = CHAT_TEMPLATE.replace("<assistant>", "<assistant><think>\n")


def test_unfinished_reasoning_of_the_prompt_is_not_text(server, model, tmp_path):
    write_byte_llama(tmp_path, chat_template=OPENS_THOUGHT)
    for folder, is_open in ((model, False), (tmp_path, True)):
        settings = replace(
            build_tokenizer_settings(server, folder, tokenized_requests=False), chat_template=True
        )
        answers = generate_all(ServerSampler(settings, None), build_requests(), SAMPLED, seed=5)
        for generation in (g for each in answers for g in each.generations):
            assert bool(generation.text) is not is_open
            assert bool(generation.reasoning) is is_open
            assert len(generation.token_ids) == 12


@pytest.mark.parametrize("enabled", [True, False])
def test_template_arguments_reach_local_template(server, tmp_path, enabled):
    template = CHAT_TEMPLATE + "{% if not enable_thinking %}<think></think>{% endif %}"
    write_byte_llama(tmp_path, chat_template=template)
    arguments = {"tokenized_requests": False, "chat_template_args": {"enable_thinking": enabled}}
    settings = replace(build_tokenizer_settings(server, tmp_path, **arguments), chat_template=True)
    generate_all(ServerSampler(settings, None), build_requests(("x",), 1), SAMPLED, seed=5)
    assert server.requests[-1]["prompt"].endswith("<think></think>") is not enabled
