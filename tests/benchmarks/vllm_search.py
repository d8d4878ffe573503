"""Generation with the vllm sampler, compared with bare ``LLM.generate`` and the hf sampler.

Needs vLLM (``make bench-vllm``). Engines and models are loaded before timing.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Decoding, Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.recipe import resolve_model
from gapft_harness.stages.generation.chunks import build_sample_phases, build_single_phase
from tests.benchmarks.measure import Figure, time_in_turn
from tests.generated import generate_missing
from tests.kit.tiny_models import write_byte_llama

K, ROUNDS = 8, 3

#: The work for comparing the two backends: prompts as long as LogiQA's.
PROBLEMS, PROMPT_TOKENS, NEW_TOKENS = 16, 300, 64


def measure(folder: Path) -> list[Figure]:
    """Compare the demo policy's pool with bare vLLM, and a small random Llama with hf."""
    return [compare_with_bare_vllm(folder), compare_with_hf(folder)]


def compare_with_bare_vllm(folder: Path) -> Figure:
    task = load_task("gapft_demo")
    problems = task.read_pool()
    greedy = task.build_decoding()
    sampled = Decoding(True, greedy.max_gen_toks, greedy.until, 1.0, 1.0, 0)
    sampler: Any = load_plugins().create_sampler(
        build_settings("vllm", resolve_model("bundled:demo")), None
    )
    stores = (folder / f"demo{number}" for number in itertools.count())
    phases = [build_single_phase(greedy), *build_sample_phases(sampled, K)]
    engine = sampler._sampler._lm.model
    prompts = [problem.prompt for problem in problems]

    def generate() -> None:
        generate_missing(next(stores), problems, phases, sampler, chunk=200)

    def bare() -> None:
        from vllm import SamplingParams

        engine.reset_prefix_cache()
        length = greedy.max_gen_toks
        engine.generate(prompts, SamplingParams(temperature=0, max_tokens=length), use_tqdm=False)
        engine.generate(
            prompts,
            [SamplingParams(n=K, max_tokens=length, seed=K * i) for i in range(len(prompts))],
            use_tqdm=False,
        )

    generate()
    bare()
    ratio, own_s, bare_s = time_in_turn(generate, bare, ROUNDS)
    sampler.close()
    return Figure(
        "generate(): warm engine, store and token ids / bare LLM.generate",
        ratio,
        1.10,
        detail=f"{own_s:.2f} s against {bare_s:.2f} s; {len(problems)} problems x (1 + {K})",
    )


def compare_with_hf(folder: Path) -> Figure:
    model = str(write_byte_llama(folder / "model", hidden=256, layers=4, context=512))
    draw = random.Random(0)
    shared = "".join(draw.choices("abcdefgh ", k=PROMPT_TOKENS // 2))
    problems = [
        Problem(f"p{i}", shared + "".join(draw.choices("abcdefgh ", k=PROMPT_TOKENS // 2)), "")
        for i in range(PROBLEMS)
    ]
    long = Decoding(True, NEW_TOKENS, (), 1.0, 1.0, 0)
    stores = (folder / f"long{number}" for number in itertools.count())
    samplers = {
        backend: load_plugins().create_sampler(build_settings(backend, model, device="cpu"), None)
        for backend in ("hf", "vllm")
    }

    def generate(backend: str) -> None:
        phases = build_sample_phases(long, K)
        generate_missing(next(stores), problems, phases, samplers[backend], chunk=200)

    generate("hf")
    generate("vllm")
    ratio, fast, slow = time_in_turn(lambda: generate("vllm"), lambda: generate("hf"), ROUNDS)
    for sampler in samplers.values():
        sampler.close()
    return Figure(
        "generate(): vllm / hf, on CPU",
        ratio,
        1 / 2.5,
        detail=f"{fast:.2f} s against {slow:.2f} s: {1 / ratio:.1f} times the throughput; "
        f"{PROBLEMS} problems x {K}, {PROMPT_TOKENS} + {NEW_TOKENS} tokens",
    )


def build_settings(backend: str, model: str, **args: Any) -> SamplerSettings:
    return SamplerSettings(backend, {"pretrained": model, "dtype": "float32", **args})
