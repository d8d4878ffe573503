"""The vllm sampler on the demo policy: greedy decodes equal hf's; samples are independent."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, STOP_STRING, Decoding, Problem
from gapft_harness.hooks.protocols import Generated, Request, SamplerSettings, beyond_context
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
from gapft_harness.recipe.recipe import resolve_model
from tests.asking import generate_all, make_request

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=32)
SAMPLED = Decoding(True, 32, (), 1.0, 1.0, 0)


def build_settings(backend: str = "vllm", **args: Any) -> SamplerSettings:
    model_args = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32"} | args
    return SamplerSettings(backend, model_args)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(load_task("gapft_demo").read_pool()[:60])


@pytest.fixture(scope="module")
def sampler() -> Iterator[VllmSampler]:
    engine = VllmSampler(build_settings(), None)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def hf() -> HfSampler:
    return HfSampler(build_settings("hf", device="cpu"), None)


def build_requests(problems: list[Problem], indices: tuple[int, ...]) -> list[Request]:
    return [make_request(problem.id, problem.prompt, indices) for problem in problems]


def list_token_ids(answers: list[Generated]) -> list[list[tuple[int, ...]]]:
    return [[g.token_ids for g in answer.generations] for answer in answers]


# Greedy decoding


@pytest.mark.parametrize(
    ("until", "length"), [((), 32), ((), 7), (("; ",), 32), (("9", "=1"), 32), (("\\boxed",), 20)]
)
def test_greedy_matches_hf(
    sampler: VllmSampler, hf: HfSampler, problems: list[Problem], until: Any, length: int
) -> None:
    decoding = Decoding(False, length, until)
    requests = build_requests(problems, (GREEDY,))
    vllm_answers, hf_answers = (
        generate_all(sampler, requests, decoding, 0),
        generate_all(hf, requests, decoding, 0),
    )
    assert vllm_answers == hf_answers
    reasons = {g.finish_reason for answer in vllm_answers for g in answer.generations}
    assert ("length" in reasons) == (length < 32)
    assert STOP_STRING not in reasons or until


# Sampling


def test_samples_depend_on_the_seed(sampler: VllmSampler, problems: list[Problem]) -> None:
    requests = build_requests(problems, tuple(range(8)))
    first = generate_all(sampler, requests, SAMPLED, 5)
    assert generate_all(sampler, requests, SAMPLED, 5) == first
    assert list_token_ids(generate_all(sampler, requests, SAMPLED, 6)) != list_token_ids(first)
    distinct = [len({g.token_ids for g in answer.generations}) for answer in first]
    assert sum(distinct) / len(distinct) > 4
    # Every two sample numbers have different streams: over 60 problems each pair differs often.
    for i, j in itertools.combinations(range(8), 2):
        agreeing = sum(a.generations[i] == a.generations[j] for a in first)
        assert agreeing < 45


def test_sample_depends_only_on_its_number(sampler: VllmSampler, problems: list[Problem]) -> None:
    """Several rounds and calls in any order give the same samples as one call."""
    whole = list_token_ids(
        generate_all(sampler, build_requests(problems, tuple(range(8))), SAMPLED, 5)
    )
    rounds = [
        list_token_ids(generate_all(sampler, build_requests(problems, (i, i + 1)), SAMPLED, 5))
        for i in (6, 0, 2, 4)
    ]
    assert whole == [
        [*one, *two, *three, *zero] for zero, one, two, three in zip(*rounds, strict=True)
    ]
    halves = [problems[1::2][::-1], problems[0::2]]
    odd, even = (
        list_token_ids(generate_all(sampler, build_requests(s, tuple(range(8))), SAMPLED, 5))
        for s in halves
    )
    assert whole == [row for pair in zip(even, odd[::-1], strict=True) for row in pair]


def test_equal_prompts_get_separate_samples(sampler: VllmSampler) -> None:
    prompt = "Determine 22 +17 *2 -9 +1."
    answers = generate_all(
        sampler,
        [make_request("a", prompt, tuple(range(8))), make_request("b", prompt, tuple(range(8)))],
        SAMPLED,
        1,
    )
    assert answers[0].prompt_ids == answers[1].prompt_ids
    first, second = list_token_ids(answers)
    assert first != second


def test_sampling_follows_temperature_top_k_top_p(
    sampler: VllmSampler, problems: list[Problem]
) -> None:
    greedy = list_token_ids(
        generate_all(sampler, build_requests(problems, (GREEDY,)), GREEDY_DECODE, 0)
    )
    for decoding in (
        replace(SAMPLED, top_k=1),
        replace(SAMPLED, top_p=1e-6),
        replace(SAMPLED, temperature=0.01, top_p=0.5),
    ):
        samples = list_token_ids(
            generate_all(sampler, build_requests(problems, (0, 1)), decoding, 9)
        )
        assert samples == [row * 2 for row in greedy]


def test_distribution_matches_hf(sampler: VllmSampler, hf: HfSampler) -> None:
    """First tokens of 800 samples: shares differ by less than four standard errors."""
    requests = [make_request("p", "Calculate 22 +17 *2.", tuple(range(800)))]
    decoding = replace(SAMPLED, max_gen_toks=1, temperature=0.8, top_p=0.9)
    shares = []
    for backend in (sampler, hf):
        [answer] = generate_all(backend, requests, decoding, 3)
        first = [g.token_ids[0] for g in answer.generations]
        shares.append({token: first.count(token) / 800 for token in set(first)})
    likely = {token for share in shares for token in share if share[token] > 0.05}
    assert len(likely) > 1
    for token in likely:
        a, b = (share.get(token, 0.0) for share in shares)
        assert abs(a - b) < 4 * (2 * a * (1 - a) / 800) ** 0.5 + 0.01


def test_ids_decode_to_the_text(sampler: VllmSampler, problems: list[Problem]) -> None:
    tokenizer = sampler._lm.tokenizer
    for problem, answer in zip(
        problems, generate_all(sampler, build_requests(problems, (0, 1)), SAMPLED, 0), strict=True
    ):
        assert tokenizer.decode(answer.prompt_ids) == problem.prompt
        for generation in answer.generations:
            assert generation.text == tokenizer.decode(
                generation.token_ids, skip_special_tokens=True
            )
            assert tokenizer.eos_token_id not in generation.token_ids
            assert generation.tokens_from == "generator"


# Errors


def test_too_long_and_empty_prompts_are_handled(
    sampler: VllmSampler,
) -> None:
    fits, too_long = make_request("a", "a" * 224, (0,)), make_request("b", "a" * 225, (0, 1))
    [alone] = generate_all(sampler, [fits], GREEDY_DECODE, 0)
    answers = generate_all(sampler, [too_long, fits], GREEDY_DECODE, 0)
    assert answers == [beyond_context(too_long), alone]
    with pytest.raises(UserError, match="problem c: empty prompt"):
        generate_all(sampler, [make_request("c", "", (0,))], GREEDY_DECODE, 0)
    no_room = replace(GREEDY_DECODE, max_gen_toks=256)
    assert generate_all(sampler, [fits], no_room, 0) == [beyond_context(fits)]
    assert generate_all(sampler, [], GREEDY_DECODE, 0) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.001}, r"search.temperature: found 0.001, which vLLM would raise to"),
        ({"temperature": 2.5}, r"vLLM refuses the decoding: temperature must be in \[0, 2\]"),
        ({"top_p": 0.0}, r"vLLM refuses the decoding: top_p must be in"),
    ],
)
def test_rejects_unsupported_decoding(
    sampler: VllmSampler, change: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        generate_all(
            sampler, [make_request("a", "Find 2 +3.", (0,))], replace(SAMPLED, **change), 0
        )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"pretrained": "/no/such/folder"}, "pretrained: .*'/no/such/folder'"),
        ({"batch_size": 0}, "batch_size: found 0"),
        ({"data_parallel_size": 2}, "data_parallel_size: expected 1.* executor.workers"),
        ({"lora_local_path": "x"}, "'lora_local_path' is not supported.* own training"),
        ({"seed": 3}, "'seed' is not supported.* search.seed"),
        ({"enable_chunked_prefill": True}, "enable_chunked_prefill: found True; expected False"),
    ],
)
def test_bad_arguments_are_refused_before_the_engine(
    monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], message: str
) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr("lm_eval.models.vllm_causallms.LLM", start)
    with pytest.raises(UserError, match=message):
        VllmSampler(build_settings(**args), None)


def test_description_matches_hf(sampler: VllmSampler, hf: HfSampler) -> None:
    vllm_description, hf_description = sampler.describe(), hf.describe()
    shared = ("pretrained", "weights_sha256", "architecture", "dtype", "device", "max_length")
    assert {key: vllm_description[key] for key in shared} == {
        key: hf_description[key] for key in shared
    }
    assert vllm_description["end_ids"] == hf_description["end_ids"]
    assert vllm_description["versions"]["vllm"]
    assert vllm_description["engine"]["in_process"] is True
    assert vllm_description["engine"]["prefix_caching"] is True
    assert vllm_description["engine"]["seeds"] == "one for each sample"
    assert vllm_description["adapter"] is None
