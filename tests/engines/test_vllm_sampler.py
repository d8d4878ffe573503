"""The vllm sampler on the demo policy: as hf in greedy decoding, independent in sampling."""

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
from tests.asking import generate_all, request_for

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=32)
SAMPLED = Decoding(True, 32, (), 1.0, 1.0, 0)


def settings(backend: str = "vllm", **args: Any) -> SamplerSettings:
    given = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32"} | args
    return SamplerSettings(backend, given)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(load_task("gapft_demo").read_pool()[:60])


@pytest.fixture(scope="module")
def sampler() -> Iterator[VllmSampler]:
    engine = VllmSampler(settings(), None)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def hf() -> HfSampler:
    return HfSampler(settings("hf", device="cpu"), None)


def asked(problems: list[Problem], indices: tuple[int, ...]) -> list[Request]:
    return [request_for(problem.id, problem.prompt, indices) for problem in problems]


def ids(answers: list[Generated]) -> list[list[tuple[int, ...]]]:
    return [[g.token_ids for g in answer.generations] for answer in answers]


# Greedy decoding


@pytest.mark.parametrize(
    ("until", "length"), [((), 32), ((), 7), (("; ",), 32), (("9", "=1"), 32), (("\\boxed",), 20)]
)
def test_greedy_equals_hf_in_ids_text_and_ends(
    sampler: VllmSampler, hf: HfSampler, problems: list[Problem], until: Any, length: int
) -> None:
    decoding = Decoding(False, length, until)
    requests = asked(problems, (GREEDY,))
    ours, theirs = (
        generate_all(sampler, requests, decoding, 0),
        generate_all(hf, requests, decoding, 0),
    )
    assert ours == theirs
    reasons = {g.finish_reason for answer in ours for g in answer.generations}
    assert ("length" in reasons) == (length < 32)
    assert STOP_STRING not in reasons or until


# Sampling


def test_k_samples_repeat_for_a_seed_and_differ_for_another(
    sampler: VllmSampler, problems: list[Problem]
) -> None:
    requests = asked(problems, tuple(range(8)))
    first = generate_all(sampler, requests, SAMPLED, 5)
    assert generate_all(sampler, requests, SAMPLED, 5) == first
    assert ids(generate_all(sampler, requests, SAMPLED, 6)) != ids(first)
    distinct = [len({g.token_ids for g in answer.generations}) for answer in first]
    assert sum(distinct) / len(distinct) > 4
    # No two sample numbers are the same stream: over 60 problems each pair differs often.
    for i, j in itertools.combinations(range(8), 2):
        agreeing = sum(a.generations[i] == a.generations[j] for a in first)
        assert agreeing < 45


def test_a_sample_depends_on_its_number_alone_not_on_the_company(
    sampler: VllmSampler, problems: list[Problem]
) -> None:
    """Rounds, several calls and any order give the same samples as one call for all."""
    whole = ids(generate_all(sampler, asked(problems, tuple(range(8))), SAMPLED, 5))
    rounds = [
        ids(generate_all(sampler, asked(problems, (i, i + 1)), SAMPLED, 5)) for i in (6, 0, 2, 4)
    ]
    assert whole == [
        [*one, *two, *three, *zero] for zero, one, two, three in zip(*rounds, strict=True)
    ]
    halves = [problems[1::2][::-1], problems[0::2]]
    odd, even = (ids(generate_all(sampler, asked(s, tuple(range(8))), SAMPLED, 5)) for s in halves)
    assert whole == [row for pair in zip(even, odd[::-1], strict=True) for row in pair]


def test_two_problems_of_one_prompt_get_samples_of_their_own(sampler: VllmSampler) -> None:
    prompt = "Determine 22 +17 *2 -9 +1."
    answers = generate_all(
        sampler,
        [request_for("a", prompt, tuple(range(8))), request_for("b", prompt, tuple(range(8)))],
        SAMPLED,
        1,
    )
    assert answers[0].prompt_ids == answers[1].prompt_ids
    one, two = ids(answers)
    assert one != two


def test_sampling_follows_temperature_top_k_and_top_p(
    sampler: VllmSampler, problems: list[Problem]
) -> None:
    greedy = ids(generate_all(sampler, asked(problems, (GREEDY,)), GREEDY_DECODE, 0))
    for decoding in (
        replace(SAMPLED, top_k=1),
        replace(SAMPLED, top_p=1e-6),
        replace(SAMPLED, temperature=0.01, top_p=0.5),
    ):
        samples = ids(generate_all(sampler, asked(problems, (0, 1)), decoding, 9))
        assert samples == [row * 2 for row in greedy]


def test_the_distribution_is_that_of_hf(sampler: VllmSampler, hf: HfSampler) -> None:
    """First tokens of 800 samples: shares within four standard errors of one another."""
    requests = [request_for("p", "Calculate 22 +17 *2.", tuple(range(800)))]
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
    tokenizer = sampler._lm.has_tokenizer
    for problem, answer in zip(
        problems, generate_all(sampler, asked(problems, (0, 1)), SAMPLED, 0), strict=True
    ):
        assert tokenizer.decode(answer.prompt_ids) == problem.prompt
        for generation in answer.generations:
            assert generation.text == tokenizer.decode(
                generation.token_ids, skip_special_tokens=True
            )
            assert tokenizer.eos_token_id not in generation.token_ids
            assert generation.tokens_from == "generator"


# What is refused, and said


def test_a_prompt_that_does_not_fit_fails_alone_and_an_empty_one_is_named(
    sampler: VllmSampler,
) -> None:
    fits, too_long = request_for("a", "a" * 224, (0,)), request_for("b", "a" * 225, (0, 1))
    [alone] = generate_all(sampler, [fits], GREEDY_DECODE, 0)
    answers = generate_all(sampler, [too_long, fits], GREEDY_DECODE, 0)
    assert answers == [beyond_context(too_long), alone]
    with pytest.raises(UserError, match="problem c: empty prompt"):
        generate_all(sampler, [request_for("c", "", (0,))], GREEDY_DECODE, 0)
    with pytest.raises(UserError, match=r"max_gen_toks is 256.* context is 256 tokens"):
        generate_all(sampler, [fits], replace(GREEDY_DECODE, max_gen_toks=256), 0)
    assert generate_all(sampler, [], GREEDY_DECODE, 0) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.001}, r"search.temperature: found 0.001, which vLLM would raise to"),
        ({"temperature": 2.5}, r"vLLM refuses the decoding: temperature must be in \[0, 2\]"),
        ({"top_p": 0.0}, r"vLLM refuses the decoding: top_p must be in"),
    ],
)
def test_a_decoding_that_vllm_would_change_or_refuse(
    sampler: VllmSampler, change: dict[str, float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        generate_all(sampler, [request_for("a", "Find 2 +3.", (0,))], replace(SAMPLED, **change), 0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"pretrained": "/no/such/folder"}, "no folder '/no/such/folder'"),
        ({"gpu_memory_utilisation": 0.5}, "did you mean 'gpu_memory_utilization'"),
        ({"dtype": "float33"}, "dtype: found 'float33'; did you mean 'float32'"),
        ({"device": "cuda:1"}, "device: found 'cuda:1', but vLLM runs on 'cpu' here"),
        ({"device": "cpu:1"}, "device: found 'cpu:1'; vLLM takes no number"),
        ({"batch_size": 0}, "batch_size: found 0"),
        ({"data_parallel_size": 2}, "data_parallel_size: expected 1.* executor.workers"),
        ({"lora_local_path": "x"}, "'lora_local_path' is not supported.* own training"),
        ({"seed": 3}, "'seed' is not supported.* search.seed"),
        ({"enable_chunked_prefill": True}, "enable_chunked_prefill: found True; expected False"),
    ],
)
def test_bad_arguments_are_known_before_an_engine_starts(
    monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], message: str
) -> None:
    def start(*_: Any, **__: Any) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr("lm_eval.models.vllm_causallms.LLM", start)
    with pytest.raises(UserError, match=message):
        VllmSampler(settings(**args), None)


def test_description(sampler: VllmSampler, hf: HfSampler) -> None:
    ours, theirs = sampler.describe(), hf.describe()
    shared = ("pretrained", "weights_sha256", "architecture", "dtype", "device", "max_length")
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}
    assert ours["end_ids"] == theirs["end_ids"]
    assert ours["versions"]["vllm"]
    assert ours["engine"]["in_process"] is True
    assert ours["engine"]["prefix_caching"] is True
    assert ours["engine"]["seeds"] == "one for each sample"
    assert ours["adapter"] is None
