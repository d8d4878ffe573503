"""The vllm sampler: the contract of samplers, and the same responses as hf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.api import (
    GREEDY,
    Decoding,
    HfSampler,
    Problem,
    SamplerSettings,
    UserError,
)
from gapft_harness.core.records import STOP_STRING
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
from gapft_harness.recipe.recipe import resolve_model
from tests.asking import generate_all, make_request
from tests.kit.sampler_contract import Check, list_checks
from tests.kit.samplers import BACKENDS, Bench, open_bench, write_model

ROW = BACKENDS["vllm"]
SAMPLED = Decoding(True, 32, (), 1.0, 1.0, 0)


# The contract, with a random model


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with open_bench(ROW, *write_model(folder), folder) as opened:
        yield opened


@pytest.mark.parametrize("check", list_checks(ROW.promises), ids=lambda check: check.__name__)
def test_backend_keeps_the_contract(bench: Bench, check: Check) -> None:
    check(bench)


# The same as hf, with the demo's model


def build_settings(backend: str = "vllm", **args: Any) -> SamplerSettings:
    model_args = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32"} | args
    return SamplerSettings(backend, model_args)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(load_task("gapft_demo").read("pool")[:60])


@pytest.fixture(scope="module")
def sampler(bench: Bench) -> Iterator[VllmSampler]:
    bench.close()  # one engine at a time
    engine = VllmSampler(build_settings(), None)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def hf() -> HfSampler:
    return HfSampler(build_settings("hf", device="cpu"), None)


@pytest.mark.parametrize(
    ("until", "length"), [((), 32), ((), 7), (("; ",), 32), (("9", "=1"), 32), (("\\boxed",), 20)]
)
def test_greedy_matches_hf(
    sampler: VllmSampler, hf: HfSampler, problems: list[Problem], until: Any, length: int
) -> None:
    decoding = Decoding(False, length, until)
    requests = [make_request(problem.id, problem.prompt, (GREEDY,)) for problem in problems]
    answers = generate_all(sampler, requests, decoding)
    assert answers == generate_all(hf, requests, decoding)
    reasons = {g.finish_reason for answer in answers for g in answer.generations}
    assert ("length" in reasons) == (length < 32)
    assert STOP_STRING not in reasons or until


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


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"temperature": 0.001}, "search.temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
    ],
)
def test_unsupported_decoding_is_refused(
    sampler: VllmSampler, change: dict[str, float], key: str
) -> None:
    requests = [make_request("a", "Find 2 +3.", (0,))]
    with pytest.raises(UserError, match=key):
        generate_all(sampler, requests, replace(SAMPLED, **change))
