"""Search and greedy decoding with real models, compared with lm-eval's own ``hf`` backend.

``GAPFT_BENCH_MODELS`` names the folders of chat models, separated as in ``PATH``. Settings:
bfloat16, one thread, processor time of this process, models loaded before. ``GAPFT_BENCH_PROBLEMS``
reduces the searches from 64 problems. Figures are medians of the searches of 16 problems each, and
of three decodes of all mixed requests.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.records import BLOCK, Decoding, Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.generation import build_greedy_phase, build_sample_phases
from tests.benchmarks.measure import Figure, list_models, read_vocabulary_size, time_in_turn
from tests.generated import generate_missing

K, CHUNK, BATCH, ROUNDS = 8, 16, 64, 3
#: Problems of a search, and greedy decodes of different lengths.
PROBLEMS, MIXED = int(os.environ.get("GAPFT_BENCH_PROBLEMS", "64")), 64
#: The required speed-up of a search: in general, and for vocabularies above the given size, whose
#: sorting takes most of lm-eval's time.
GOAL, LARGE, GOAL_OF_LARGE = 2.5, 100_000, 4.0

#: Two worked examples as turns.
SHOTS = (
    (
        "A shop has 12 red pens and 7 blue pens. It sells 5 pens in the morning and 3 pens in the "
        "afternoon. How many pens are left in the shop at the end of the day?",
        "The shop has 12 + 7 = 19 pens. It sells 5 + 3 = 8 pens. So 19 - 8 = 11 pens are left.\n"
        "The answer is \\boxed{11}.",
    ),
    (
        "Tom reads 14 pages on each of the first three days of the week and 20 pages on the "
        "fourth day. How many pages does he read in these four days?",
        "On the first three days he reads 3 * 14 = 42 pages. With the fourth day that is "
        "42 + 20 = 62 pages.\nThe answer is \\boxed{62}.",
    ),
)
TOPICS = ("rivers", "the moon", "bread", "maps", "a lighthouse", "clocks", "snow", "bees")


def measure(folder: Path) -> Iterator[Figure]:
    """Measure 64 two-shot problems with 1 + 8 decodes, and greedy decodes of mixed lengths."""
    import torch

    torch.set_num_threads(1)
    for number, model in enumerate(list_models("real_models")):
        yield from measure_model(folder / str(number), model)


def measure_model(folder: Path, model: Path) -> Iterator[Figure]:
    from lm_eval.models.huggingface import HFLM

    folder.mkdir()
    arguments = {
        "pretrained": str(model),
        "dtype": "bfloat16",
        "device": "cpu",
        "batch_size": BATCH,
    }
    sampler = load_plugins().create_sampler(SamplerSettings("hf", arguments), None)
    lm = HFLM(**arguments)
    lm.model.generation_config = sampler._sampler._lm.model.generation_config
    words = build_word_problems(lm)
    sampled = Decoding(True, 64, (), 0.7, 0.95, 0)
    greedy = Decoding(False, 64)
    chunks = [words[first : first + CHUNK] for first in range(0, len(words), CHUNK)]
    of_ours, of_theirs = iter(chunks), iter(chunks)

    def search_as_lm_eval() -> None:
        chunk = next(of_theirs)
        generate_with_lm_eval(lm, chunk, greedy, 1)
        generate_with_lm_eval(lm, chunk, sampled, K)

    phases = [build_greedy_phase(greedy), *build_sample_phases(sampled, K)]
    search = time_in_turn(
        lambda: search_with_harness(folder, next(of_ours), phases, sampler),
        search_as_lm_eval,
        rounds=len(chunks),
        clock=time.process_time,
    )
    name, what = model.name, f"{CHUNK} of {PROBLEMS} problems x (1 + {K})"
    goal = GOAL_OF_LARGE if read_vocabulary_size(model) > LARGE else GOAL
    detail = format_detail(search, what)
    yield Figure(f"{name}: search / lm-eval's hf", search[0], 1 / goal, detail=detail)
    mixed, long = build_mixed_requests(lm), Decoding(False, 200)
    alone = time_in_turn(
        lambda: search_with_harness(folder, mixed, [build_greedy_phase(long)], sampler),
        lambda: generate_with_lm_eval(lm, mixed, long, 1),
        rounds=ROUNDS,
        clock=time.process_time,
    )
    detail = format_detail(alone, f"{len(mixed)} problems, at most 200 tokens")
    yield Figure(f"{name}: greedy, mixed lengths / lm-eval's hf", alone[0], 1 / 1.5, detail=detail)


def search_with_harness(
    folder: Path, problems: list[Problem], phases: list[DecodePhase], sampler: Any
) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as store:
        chunk = CHUNK if len(phases) > 1 else CHUNK * BLOCK
        generate_missing(Path(store), problems, phases, sampler, chunk=chunk)


def generate_with_lm_eval(
    lm: Any, problems: list[Problem], decoding: Decoding, repeats: int
) -> None:
    from lm_eval.api.instance import Instance

    kwargs: dict[str, Any] = {
        "until": [], "max_gen_toks": decoding.max_gen_toks, "do_sample": decoding.do_sample,
    }  # fmt: skip
    if decoding.do_sample:
        kwargs |= {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": 0}
    requests = [
        Instance("generate_until", {}, (problem.prompt, kwargs), 0)
        for problem in problems
        for _ in range(repeats)
    ]
    with contextlib.redirect_stderr(io.StringIO()):
        lm.generate_until(requests)


def build_word_problems(lm: Any) -> list[Problem]:
    """Build arithmetic word problems after two examples, as turns of the model's chat."""
    draw = random.Random(0)
    problems = []
    for number in range(PROBLEMS):
        a, b = draw.randrange(5, 99), draw.randrange(3, 60)
        where = draw.choice(("", " in a basket on the long table near the old kitchen door"))
        question = (
            f"{draw.choice(('Ann', 'Ben', 'Carl', 'Dora'))} has {a} apples{where} and buys {b} "
            f"more on {draw.choice(('Monday', 'Tuesday'))}. How many apples are there now?"
        )
        shots = [
            {"role": role, "content": text}
            for shot in SHOTS
            for role, text in zip(("user", "assistant"), shot, strict=True)
        ]
        prompt = lm.apply_chat_template([*shots, {"role": "user", "content": question}])
        problems.append(Problem(f"p{number}", prompt, str(a + b)))
    return problems


def build_mixed_requests(lm: Any) -> list[Problem]:
    """Build requests: three of four ask for a word, the fourth for a story."""
    problems = []
    for number in range(MIXED):
        topic = TOPICS[number % len(TOPICS)]
        question = (
            f"Write a story about {topic} and the number {number}."
            if number % 4 == 0
            else f"Is {topic} a good subject for story number {number}? Reply with yes or no only."
        )
        prompt = lm.apply_chat_template([{"role": "user", "content": question}])
        problems.append(Problem(f"p{number}", prompt, ""))
    return problems


def format_detail(measured: tuple[float, float, float], what: str) -> str:
    ratio, own_s, bare_s = measured
    return f"{1 / ratio:.1f} times as fast: {own_s:.1f} s against {bare_s:.1f} s; {what}"
