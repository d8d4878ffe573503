"""Generation with the vllm sampler, compared with the hf sampler.

Needs vLLM (``make bench-vllm``). Engines and models are loaded before timing.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from gapft_harness.core.records import Decoding, Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.stages.generation.chunks import build_sample_phases
from tests.benchmarks.measure import Figure, time_in_turn
from tests.generated import generate_missing
from tests.kit.tiny_models import write_byte_llama

K, ROUNDS = 8, 3

#: The work for comparing the two backends: prompts as long as LogiQA's.
PROBLEMS, PROMPT_TOKENS, NEW_TOKENS = 16, 300, 64


def measure(folder: Path) -> list[Figure]:
    """Compare a small random Llama with both."""
    model = write_byte_llama(folder / "model", hidden=256, layers=4, context=512)
    args = {"pretrained": str(model), "dtype": "float32", "device": "cpu"}
    draw = random.Random(0)
    shared = "".join(draw.choices("abcdefgh ", k=PROMPT_TOKENS // 2))
    problems = [
        Problem(f"p{i}", shared + "".join(draw.choices("abcdefgh ", k=PROMPT_TOKENS // 2)), "")
        for i in range(PROBLEMS)
    ]
    phases = build_sample_phases(Decoding(True, NEW_TOKENS, (), 1.0, 1.0, 0), K)
    stores = (folder / f"long{number}" for number in itertools.count())
    samplers = {
        backend: load_plugins().create_sampler(SamplerSettings(backend, args), None)
        for backend in ("hf", "vllm")
    }

    def generate(backend: str) -> None:
        generate_missing(next(stores), problems, phases, samplers[backend], chunk=200)

    generate("hf")
    generate("vllm")
    ratio, fast, slow = time_in_turn(lambda: generate("vllm"), lambda: generate("hf"), ROUNDS)
    for sampler in samplers.values():
        sampler.close()
    detail = f"{fast:.2f} s against {slow:.2f} s: {1 / ratio:.1f} times the throughput"
    return [Figure("generate(): vllm / hf, on CPU", ratio, 1 / 2.5, detail=detail)]
