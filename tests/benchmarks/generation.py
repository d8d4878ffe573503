"""Generation and the search stage compared with lm-eval's bare backend on the same requests."""

from __future__ import annotations

import contextlib
import io
import itertools
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Decoding
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe, resolve_model
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.generation.generation import build_greedy_phase, build_sample_phases
from gapft_harness.stages.search.stage import search_split
from tests.benchmarks.measure import Figure, time_in_turn
from tests.generated import generate_missing

K, CHUNK, ROUNDS = 8, 200, 5


def measure(folder: Path) -> list[Figure]:
    """Measure the demo policy on its pool: 400 problems, 1 greedy decode and 8 samples each."""
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(1)
    arguments = {
        "pretrained": resolve_model("bundled:demo"),
        "dtype": "float32",
        "device": "cpu",
        "batch_size": 256,
    }
    task = load_task("gapft_demo")
    problems = task.read_pool()
    prompts = [problem.prompt for problem in problems]
    greedy = task.build_decoding()
    sampled = Decoding(True, greedy.max_gen_toks, greedy.until, 1.0, 1.0, 0)
    number = itertools.count()

    def our_generation() -> None:
        phases = [build_greedy_phase(greedy), *build_sample_phases(sampled, K)]
        generate_missing(folder / f"store{next(number)}", problems, phases, sampler, chunk=CHUNK)

    def our_search() -> None:
        run = folder / f"{next(number)}" / "run"  # with its own store beside it
        RunDirectory.create_or_open(run, build_recipe(arguments))
        search_split(str(run), "pool")

    def bare_search() -> None:
        generate_bare(HFLM(**arguments), prompts, greedy)

    our_search()
    bare_search()
    whole = time_in_turn(our_search, bare_search, ROUNDS)

    sampler = load_plugins().create_sampler(SamplerSettings("hf", arguments), None)
    lm = HFLM(**arguments)
    our_generation()
    generate_bare(lm, prompts, greedy)
    warm = time_in_turn(our_generation, lambda: generate_bare(lm, prompts, greedy), ROUNDS)
    return [
        Figure(
            "generate(): warm model, store and token ids / bare generate_until",
            warm[0],
            1.10,
            detail=format_detail(warm, len(problems)),
        ),
        Figure(
            "search(): loading, generation, verdicts, sealing / load HFLM, generate_until",
            whole[0],
            None,  # fixed costs of some seconds: verifier workers, sealing
            detail=format_detail(whole, len(problems)),
        ),
    ]


def generate_bare(lm: Any, prompts: list[str], greedy: Decoding) -> None:
    """Generate one greedy decode and K samples per prompt with lm-eval alone."""
    from lm_eval.api.instance import Instance

    common = {"until": list(greedy.until), "max_gen_toks": greedy.max_gen_toks}
    settings = {**common, "do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
    for repeats, kwargs in ((1, {**common, "do_sample": False}), (K, settings)):
        requests = [
            Instance("generate_until", {}, (prompt, kwargs), 0)
            for prompt in prompts
            for _ in range(repeats)
        ]
        with contextlib.redirect_stderr(io.StringIO()):
            lm.generate_until(requests)


def build_recipe(arguments: dict[str, Any]) -> Recipe:
    content = {
        "name": "bench",
        "data": {"task": "gapft_demo"},
        "model": {"args": arguments},
        "search": {"k": K, "temperature": 1.0, "top_p": 1.0, "chunk": CHUNK},
    }
    return check_recipe(content, "bench")


def format_detail(measured: tuple[float, float, float], problems: int) -> str:
    return f"{measured[1]:.2f} s against {measured[2]:.2f} s; {problems} problems x (1 + {K})"
