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
from tests.asking import generate_all, request_for
from tests.tiny_models import CHAT_TEMPLATE, byte_adapter, byte_llama
from tests.toy_server import ToyServer, Ways, answer

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=12)
SAMPLED = Decoding(do_sample=True, max_gen_toks=12, temperature=0.9, top_p=0.95)
K = 8


@pytest.fixture
def server():
    with ToyServer() as toy:
        yield toy


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return byte_llama(tmp_path_factory.mktemp("byte-llama"), chat_template=CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def encode(model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return lambda text: tokenizer(text, add_special_tokens=False).input_ids


def settings(server: ToyServer, chat: bool = False, **args) -> SamplerSettings:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    given = {"model": "toy", "base_url": server.url(path), "tokenizer_backend": "None"} | args
    name = "local-chat-completions" if chat else "local-completions"
    return SamplerSettings(name, given, chat_template=chat)


def with_tokenizer(server: ToyServer, model, chat: bool = False, **args) -> SamplerSettings:
    return settings(server, chat, tokenizer=str(model), tokenizer_backend="huggingface", **args)


def requests(prompts=("one", "two", "three"), k: int = K) -> list[Request]:
    return [request_for(f"p{i}", prompt, tuple(range(k))) for i, prompt in enumerate(prompts)]


def by_seed(body: dict[str, Any]) -> int:
    return body["seed"]


def texts(answers) -> list[list[str]]:
    return [[g.text for g in each.generations] for each in answers]


# Seeds


def test_the_k_samples_of_a_prompt_have_seeds_of_their_own(server):
    sampler = ServerSampler(settings(server), None)
    first = generate_all(sampler, requests(), SAMPLED, seed=5)
    assert all(len(set(row)) == K for row in texts(first))
    assert all(0 <= request["seed"] < 2**31 for request in server.requests if "seed" in request)
    assert generate_all(sampler, requests(), SAMPLED, seed=5) == first
    assert not {t for row in texts(first) for t in row} & {
        t for row in texts(generate_all(sampler, requests(), SAMPLED, seed=6)) for t in row
    }


def test_equal_prompts_of_two_problems_get_samples_of_their_own(server):
    sampler = ServerSampler(settings(server), None)
    rows = texts(generate_all(sampler, requests(("same", "same")), SAMPLED, seed=5))
    assert len({text for row in rows for text in row}) == 2 * K


def test_a_sample_does_not_depend_on_what_else_is_asked_for(server):
    sampler = ServerSampler(settings(server), None)
    [alone] = generate_all(sampler, [request_for("p1", "two", (3,))], SAMPLED, seed=5)
    among = generate_all(sampler, requests(), SAMPLED, seed=5)
    assert alone.generations[0] == among[1].generations[3]


# Requests


def test_requests_are_sent_together_and_come_back_in_order(server):
    """Four requests wait for each other inside the server, so four must be under way at once."""
    one_by_one = ServerSampler(settings(server, num_concurrent=1), None)
    expected = generate_all(one_by_one, requests(), SAMPLED, seed=5)
    assert server.most == 1
    four = ServerSampler(settings(server, num_concurrent=4), None)
    barrier = threading.Barrier(4)

    def together(handler):
        barrier.wait(timeout=20)
        answer(handler)

    server.ways.faults.extend([together] * 4)
    assert generate_all(four, requests(), SAMPLED, seed=5) == expected
    assert server.most == 4


def test_greedy_and_sampled_settings_are_passed_on(server):
    sampler = ServerSampler(settings(server), None)
    server.requests.clear()
    until = ("\n", "a", "b", "c", "d", "e")
    generate_all(sampler, requests(("x",), 1), replace(GREEDY_DECODE, until=until), 0)
    generate_all(sampler, requests(("x",), 1), SAMPLED, 0)
    greedy, sampled = server.requests
    assert greedy["temperature"] == 0
    assert greedy["stop"] == list(until)
    assert "stop" not in sampled
    assert (sampled["temperature"], sampled["top_p"], sampled["max_tokens"]) == (0.9, 0.95, 12)
    assert "top_k" not in sampled


def test_chat_stop_strings_are_not_cut_to_four(server):
    sampler = ServerSampler(settings(server, chat=True), None)
    generate_all(sampler, requests(("x",), 1), replace(SAMPLED, until=tuple("123456")), 0)
    assert server.requests[-1]["stop"] == list("123456")


def test_a_server_that_takes_them_gets_all_sampling_settings(server, encode, model):
    server.ways = Ways(extended=True, encode=encode)
    sampler = ServerSampler(with_tokenizer(server, model), None)
    generate_all(sampler, requests(("x",), 1), replace(SAMPLED, top_k=7, until=("<s>",)), 0)
    sent = server.requests[-1]
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (7, 0.0, 1.0)
    assert sent["stop_token_ids"] == [1]
    generate_all(sampler, requests(("x",), 1), SAMPLED, 0)
    assert server.requests[-1]["top_k"] == -1


def test_top_k_on_a_server_that_refuses_it(server):
    sampler = ServerSampler(settings(server), None)
    server.requests.clear()
    with pytest.raises(UserError, match=r"search\.top_k: found 7"):
        generate_all(sampler, requests(), replace(SAMPLED, top_k=7), 0)
    assert server.requests == []


# Prompts


SAID = (Attempt("One.", (4,), "stop", "No."), Attempt("Two.", (5,), "stop", "No!"))


def test_a_chat_is_sent_as_turns_and_rendered_by_the_server(server):
    chat = replace(settings(server, chat=True), system_instruction="Be brief.")
    generate_all(ServerSampler(chat, None), [request_for("a", "Why?", (0,), SAID)], SAMPLED, 0)
    assert [(turn["role"], turn["content"]) for turn in server.requests[-1]["messages"]] == [
        ("system", "Be brief."),
        ("user", "Why?"),
        ("assistant", "One."),
        ("user", "No."),
        ("assistant", "Two."),
        ("user", "No!"),
    ]


BEGUN = (
    *({"role": "user", "content": "One?"}, {"role": "assistant", "content": "It is one."}),
    *({"role": "user", "content": "Why?"}, {"role": "assistant", "content": "It is"}),
)


def test_a_turn_that_the_task_begins_is_continued_or_refused(server, model, encode):
    begun = [request_for("a", "Why? It is", (0,), turns=BEGUN)]
    completion = replace(with_tokenizer(server, model), chat_template=True)
    generate_all(ServerSampler(completion, None), begun, SAMPLED)
    rendered = "<user>One?\n<assistant>It is one.\n<user>Why?\n<assistant>It is"
    assert server.requests[-1]["prompt"] == [1, *encode(rendered)]
    chat = settings(server, chat=True)
    sampler = ServerSampler(chat, None)
    asked = len(server.requests)
    with pytest.raises(UserError, match="gen_prefix"):
        generate_all(sampler, begun, SAMPLED)
    assert len(server.requests) == asked
    server.ways = Ways(extended=True, encode=encode)
    generate_all(ServerSampler(chat, None), begun, SAMPLED)
    sent = server.requests[-1]
    assert sent["messages"] == [*BEGUN]
    assert (sent["add_generation_prompt"], sent["continue_final_message"]) == (False, True)


def test_a_completion_is_sent_as_ids_rendered_here(server, model, encode):
    chat = replace(with_tokenizer(server, model), chat_template=True)
    [got] = generate_all(
        ServerSampler(chat, None), [request_for("a", "Why?", (0,), SAID[:1])], SAMPLED, 0
    )
    rendered = "<user>Why?\n<assistant>One.\n<user>No.\n<assistant>"
    assert server.requests[-1]["prompt"] == [1, *encode(rendered)]
    assert got.prompt_ids == (1, *encode(rendered))


def test_start_tokens_are_sent_as_ids_or_refused(server, model, encode):
    two = replace(with_tokenizer(server, model), start_tokens=2)
    [got] = generate_all(ServerSampler(two, None), [request_for("a", "<s>Why?", (0,))], SAMPLED, 0)
    assert server.requests[-1]["prompt"] == [1, 1, *encode("Why?")]
    assert got.prompt_ids == (1, 1, *encode("Why?"))
    as_text = replace(with_tokenizer(server, model, tokenized_requests=False), start_tokens=2)
    for refused in (as_text, replace(settings(server), start_tokens=2)):
        with pytest.raises(UserError, match=r"start_tokens: found 2, but prompts are sent as text"):
            ServerSampler(refused, None)
        with pytest.raises(UserError, match=r"remove tokenizer_backend and tokenized_requests"):
            find_model(refused)


def test_a_completion_is_sent_as_text_where_asked(server, model):
    plain = with_tokenizer(server, model, tokenized_requests=False)
    generate_all(ServerSampler(plain, None), [request_for("a", "Why?", (0,), SAID[:1])], SAMPLED, 0)
    assert server.requests[-1]["prompt"] == "Why?One.\n\nNo.\n\n"


def test_arguments_of_a_local_model_say_nothing_to_a_server(server, model):
    asked = requests(("x",), 2)
    plain = ServerSampler(with_tokenizer(server, model), None)
    of_hf = {"dtype": "bfloat16", "device": "cpu", "batch_size": 64}
    switched = ServerSampler(with_tokenizer(server, model, **of_hf), None)
    server.requests.clear()
    assert generate_all(plain, asked, SAMPLED, 0) == generate_all(switched, asked, SAMPLED, 0)
    first, second = server.requests[:2], server.requests[2:]  # a pair may arrive in either order
    assert sorted(first, key=by_seed) == sorted(second, key=by_seed)


def test_a_prompt_that_does_not_fit_fails_alone_and_is_not_sent(server, model):
    server.ways.models = [{"id": "toy", "max_model_len": 32}]
    sampler = ServerSampler(with_tokenizer(server, model), None)
    [alone] = generate_all(sampler, requests(("x" * 20,), 1), SAMPLED, 0)
    server.requests.clear()
    asked = requests(("x" * 20, "y" * 21), 1)
    assert generate_all(sampler, asked, SAMPLED, 0) == [alone, beyond_context(asked[1])]
    assert len(server.requests) == 1
    with pytest.raises(UserError, match="problem p0: empty prompt"):
        generate_all(sampler, requests(("",), 1), SAMPLED, 0)


# Token ids and ends


def test_ids_of_the_server_are_kept_without_the_end(server, model, encode):
    server.ways = Ways(extended=True, encode=encode)
    sampler = ServerSampler(with_tokenizer(server, model), None)
    assert sampler.describe()["token_ids"] == "generator"
    [got] = generate_all(sampler, requests(("x",), 4), SAMPLED, 0)
    for generation in got.generations:
        assert generation.token_ids == tuple(encode(generation.text))
        assert (generation.finish_reason, generation.tokens_from) == ("stop", "generator")
    [got] = generate_all(sampler, requests(("x",), 4), replace(SAMPLED, max_gen_toks=5), 0)
    for generation in got.generations:
        assert len(generation.token_ids) == 5
        assert generation.finish_reason == "length"


def test_a_stop_string_cuts_the_servers_ids(server, model, encode):
    server.ways = Ways(extended=True, encode=encode)
    sampler = ServerSampler(with_tokenizer(server, model), None)
    [free] = generate_all(sampler, requests(("x",), 1), GREEDY_DECODE, 0)
    whole = free.generations[0].text
    [got] = generate_all(
        sampler, requests(("x",), 1), replace(GREEDY_DECODE, until=(whole[4:6],)), 0
    )
    [cut] = got.generations
    assert cut.text == whole.split(whole[4:6])[0] != whole
    assert cut.token_ids == tuple(encode(cut.text))
    assert cut.tokens_from == "generator"
    assert (cut.finish_reason, cut.stop_string) == (STOP_STRING, whole[4:6])


def test_without_ids_from_the_server_text_is_tokenized_and_flagged(server, model, encode):
    sampler = ServerSampler(with_tokenizer(server, model), None)
    [got] = generate_all(sampler, requests(("x",), 2), SAMPLED, 0)
    for generation in got.generations:
        assert generation.token_ids == tuple(encode(generation.text))
        assert generation.tokens_from == "retokenized"
    [bare] = generate_all(ServerSampler(settings(server), None), requests(("x",), 1), SAMPLED, 0)
    assert bare.prompt_ids == bare.generations[0].token_ids == ()
    assert bare.generations[0].tokens_from == "none"


def test_prompt_ids_of_a_chat_are_the_servers(server, model, encode):
    server.ways = Ways(extended=True, encode=encode)
    sampler = ServerSampler(with_tokenizer(server, model, chat=True), None)
    [got] = generate_all(sampler, requests(("x",), 1), SAMPLED, 0)
    assert got.prompt_ids == tuple(encode(json.dumps(server.requests[-1]["messages"])))


# Description


def test_the_description_tells_server_and_settings_and_no_key(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    server.ways.key = "sk-very-secret"
    server.ways.version = "0.32.0"
    facts = ServerSampler(settings(server, num_concurrent=3), None).describe()
    assert facts["url"] == server.url()
    assert facts["model"] == "toy"
    assert facts["server"]["version"] == "0.32.0"
    assert facts["num_concurrent"] == 3
    assert "secret" not in json.dumps(facts)


# Adapters


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory) -> Adapter:
    return Adapter(Arm("gapft", 13), str(byte_adapter(model, tmp_path_factory.mktemp("arm"))))


def test_an_adapter_is_loaded_asked_for_and_taken_away(server, model, adapter):
    server.ways.loads_adapters = True
    sampler = ServerSampler(settings(server, pretrained=str(model)), adapter)
    [(name, path)] = server.loaded.items()
    assert name.startswith("gapft:gapft-seed13:")
    assert path == adapter.path
    generate_all(sampler, requests(("x",), 1), GREEDY_DECODE, 0)
    assert server.requests[-1]["model"] == name
    assert sampler.describe()["adapter"]["arm"] == "gapft-seed13"
    sampler.close()
    assert server.loaded == {}


def test_two_samplers_of_one_adapter_load_and_take_away_their_own(server, model, adapter):
    """The audit and the trained problems of an arm are decoded side by side."""
    server.ways.loads_adapters = True
    with ThreadPoolExecutor(2) as both:
        first, second = both.map(
            lambda _: ServerSampler(settings(server, pretrained=str(model)), adapter), range(2)
        )
    assert len(server.loaded) == 2
    assert first.describe()["adapter"] == second.describe()["adapter"]
    expected = generate_all(second, requests(("x",), 1), GREEDY_DECODE, 0)
    first.close()
    assert generate_all(second, requests(("x",), 1), GREEDY_DECODE, 0) == expected
    third = ServerSampler(settings(server, pretrained=str(model)), adapter)
    second.close()
    assert generate_all(third, requests(("x",), 1), GREEDY_DECODE, 0) == expected
    third.close()
    assert server.loaded == {}


def test_an_adapter_that_the_server_was_started_with_is_known_by_its_folder(server, model, adapter):
    server.loaded = {"gapft-seed13": adapter.path}
    sampler = ServerSampler(settings(server, pretrained=str(model)), adapter)
    generate_all(sampler, requests(("x",), 1), GREEDY_DECODE, 0)
    assert server.requests[-1]["model"] == "gapft-seed13"
    sampler.close()
    assert list(server.loaded) == ["gapft-seed13"]


def test_older_weights_from_the_same_folder_are_not_taken_for_the_adapter(server, model, adapter):
    server.ways.loads_adapters = True
    server.loaded = {"gapft:gapft-seed13:0123456789abcdef": adapter.path}
    sampler = ServerSampler(settings(server, pretrained=str(model)), adapter)
    assert sampler.describe()["model"] not in ("toy", "gapft:gapft-seed13:0123456789abcdef")


def test_a_server_that_loads_no_adapters_is_refused_with_what_to_do(server, model, adapter):
    with pytest.raises(UserError, match="cannot serve the trained adapter") as refused:
        ServerSampler(settings(server, pretrained=str(model)), adapter)
    assert f"--lora-modules gapft-seed13={adapter.path}" in str(refused.value)
    assert "--max-lora-rank 8" in str(refused.value)


def test_an_adapter_that_is_there_while_it_is_decoded_is_no_module_to_start_with(
    server, model, adapter, tmp_path
):
    folder = shutil.copytree(adapter.path, tmp_path / ".gapft-seed13-0.5")
    passing = replace(adapter, path=str(folder))
    with pytest.raises(UserError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True") as refused:
        ServerSampler(settings(server, pretrained=str(model)), passing)
    assert "--lora-modules" not in str(refused.value)


def test_an_adapter_of_another_model_is_refused_here(server, adapter, tmp_path):
    server.ways.loads_adapters = True
    other = byte_llama(tmp_path, hidden=64)
    with pytest.raises(UserError, match="does not fit the model"):
        ServerSampler(settings(server, pretrained=str(other)), adapter)
    assert server.loaded == {}


def test_template_arguments_that_a_server_does_not_take(server):
    thinking = settings(server, chat=True, chat_template_args={"enable_thinking": False})
    with pytest.raises(UserError, match="chat_template_args"):
        ServerSampler(thinking, None)
    server.ways.extended = True
    generate_all(ServerSampler(thinking, None), requests(("x",), 1), SAMPLED, 0)
    assert server.requests[-1]["chat_template_kwargs"] == {"enable_thinking": False}
