"""A real ``vllm serve`` on loopback as search and audit model, against the hf backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Adapter, Arm, Attempt, Decoding, Problem
from gapft_harness.hooks.protocols import Generated, Request, SamplerSettings, beyond_context
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.server.sampler import ServerSampler
from gapft_harness.recipe.recipe import resolve_model
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import write_byte_adapter

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=32)
SAMPLED = Decoding(True, 32, (), 1.0, 1.0, 0)
K = 8


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(load_task("gapft_demo").read("pool")[:40])


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    folder = tmp_path_factory.mktemp("adapter")
    write_byte_adapter(Path(resolve_model("bundled:demo")), folder)
    return Adapter(Arm("gapft", 13), str(folder))


def build_settings(url: str, **args: Any) -> SamplerSettings:
    model_args = {
        "pretrained": resolve_model("bundled:demo"),
        "model": "demo",
        "base_url": f"{url}/completions",
    }
    return SamplerSettings("local-completions", model_args | args)


def build_hf_sampler(adapter: Adapter | None = None) -> HfSampler:
    model_args = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32", "device": "cpu"}
    return HfSampler(SamplerSettings("hf", model_args), adapter)


def build_requests(problems: list[Problem], indices: tuple[int, ...]) -> list[Request]:
    return [make_request(problem.id, problem.prompt, indices) for problem in problems]


def list_texts(answers: list[Generated]) -> list[list[str]]:
    return [[g.text for g in answer.generations] for answer in answers]


@pytest.mark.parametrize("until", [(), ("; \\boxed",), ("=",), ("</s>",)])
def test_greedy_matches_hf(url: str, problems: list[Problem], until: tuple[str, ...]) -> None:
    decoding = Decoding(False, 32, until)
    requests = build_requests(problems, (GREEDY,))
    server = ServerSampler(build_settings(url), None)
    assert server.describe()["token_ids"] == "generator"
    assert generate_all(server, requests, decoding, 0) == generate_all(
        build_hf_sampler(), requests, decoding, 0
    )


def test_samples_are_independent_and_repeat(url: str, problems: list[Problem]) -> None:
    """The number of distinct responses equals hf's up to chance; none is used twice."""
    requests = build_requests(problems, tuple(range(K)))
    server = ServerSampler(build_settings(url), None)
    rows = list_texts(generate_all(server, requests, SAMPLED, 1))
    again = list_texts(generate_all(server, requests, SAMPLED, 1))
    pairs = [
        pair for row, twin in zip(rows, again, strict=True) for pair in zip(row, twin, strict=True)
    ]
    # Batches differ each time and round differently, so near ties may change.
    assert sum(first == second for first, second in pairs) >= 0.99 * len(pairs)
    distinct = sum(len(set(row)) for row in rows)
    of_hf = sum(
        len(set(row)) for row in list_texts(generate_all(build_hf_sampler(), requests, SAMPLED, 1))
    )
    # 40 problems x 8: the standard deviation of each sum is below 8.
    assert abs(distinct - of_hf) < 40
    other = list_texts(generate_all(server, requests, SAMPLED, 2))
    for i in range(K):
        for j in range(i):
            assert any(row[i] != row[j] for row in rows)
        assert any(row[i] != twin[i] for row, twin in zip(rows, other, strict=True))


def test_loaded_adapter_matches_hf_with_peft(
    url: str, problems: list[Problem], adapter: Adapter
) -> None:
    requests = build_requests(problems, (GREEDY,))
    source = generate_all(ServerSampler(build_settings(url), None), requests, GREEDY_DECODE, 0)
    arm = ServerSampler(build_settings(url), adapter)
    answers = generate_all(arm, requests, GREEDY_DECODE, 0)
    assert answers == generate_all(build_hf_sampler(adapter), requests, GREEDY_DECODE, 0)
    assert sum(a != b for a, b in zip(list_texts(answers), list_texts(source), strict=True)) > 5
    name = arm.describe()["model"]
    arm.close()
    with pytest.raises(UserError, match=name):
        ServerSampler(build_settings(url, model=name), None)


def test_refuses_adapter_above_the_servers_rank(url: str, tmp_path: Path) -> None:
    write_byte_adapter(Path(resolve_model("bundled:demo")), tmp_path, rank=16)
    with pytest.raises(UserError, match=r"\b16\b.*max_lora_rank 8"):
        ServerSampler(build_settings(url), Adapter(Arm("gapft", 13), str(tmp_path)))


def test_server_renders_the_chat(url: str) -> None:
    chat = build_settings(url, base_url=f"{url}/chat/completions", tokenizer_backend="None")
    chat = SamplerSettings("local-chat-completions", chat.model_args, chat_template=True)
    request = make_request("a", "Find 1 +1.", (0, 1), (Attempt("By eye.", (), "stop", "No."),))
    [answer] = generate_all(ServerSampler(chat, None), [request], SAMPLED, 3)
    rendered = "<user>Find 1 +1.\n<assistant>By eye.\n<user>No.\n<assistant>"
    tokenizer = build_hf_sampler()._lm.tokenizer
    ids = tokenizer(rendered, add_special_tokens=False).input_ids
    assert answer.prompt_ids == (tokenizer.bos_token_id, *ids)
    assert {g.tokens_from for g in answer.generations} == {"generator"}


def test_prompt_beyond_context_fails_alone(url: str) -> None:
    requests = [
        make_request("long", "1 + " * 300, (GREEDY,)),
        make_request("short", "Find 1 +1.", (GREEDY,)),
    ]
    as_ids = build_settings(url)
    as_text = build_settings(url, tokenizer_backend="None")
    args = build_settings(
        url, base_url=f"{url}/chat/completions", tokenizer_backend="None"
    ).model_args
    as_chat = SamplerSettings("local-chat-completions", args, chat_template=True)
    for way in (as_ids, as_text, as_chat):
        long, short = generate_all(ServerSampler(way, None), requests, GREEDY_DECODE, 0)
        assert long == beyond_context(requests[0])
        assert short.generations[0].text
