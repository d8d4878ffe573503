"""The sampler ``hf`` compared with lm-eval's own ``hf`` model on the same requests.

``GAPFT_BENCH_MODELS`` names the folders of chat models, separated as in ``PATH``, which are
measured beside the demo's policy, in float32 where the CPU has no instructions for bfloat16.
Models are loaded before; one thread, processor time.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Decoding, Problem
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.recipe import resolve_model
from gapft_harness.stages.generation.chunks import (
    DecodePhase,
    build_sample_phases,
    build_single_phase,
)
from tests.benchmarks.measure import (
    Figure,
    choose_dtype,
    list_models,
    read_vocabulary_size,
    time_in_turn,
)
from tests.generated import generate_missing

K, BATCH, ROUNDS = 8, 64, 3
#: Problems of a real model, and of a part, which is one round.
PROBLEMS, PART = 64, 16
#: The required speed-up of a search: in general, and for vocabularies above the given size, whose
#: sorting takes most of lm-eval's time.
GOAL, LARGE, GOAL_OF_LARGE = 2.5, 100_000, 4.0
#: Greedy decodes of all problems, whose lengths differ.
GREEDY_ROUNDS, GOAL_OF_GREEDY = 3, 1.5

#: A worked example as turns, which every prompt has four times.
SHOT = (
    {"role": "user", "content": "Find 12 +7 -5 -3."},
    {"role": "assistant", "content": "12 +7 = 19; 19 -5 = 14; 14 -3 = 11; \\boxed{11}."},
)


def measure(folder: Path) -> Iterator[Figure]:
    """Measure the demo's pool of 400 problems with 1 + 8 decodes, and each real model."""
    import torch

    torch.set_num_threads(1)
    demo = Pair("demo", folder / "demo", Path(resolve_model("bundled:demo")), "float32", 256)
    task = load_task("gapft_demo")
    problems, greedy = task.read("pool"), task.build_decoding()
    sampled = Decoding(True, greedy.max_gen_toks, greedy.until, 1.0, 1.0, 0)
    demo.compare([problems], greedy, sampled, 1)  # the first round is slower
    yield demo.compare([problems] * ROUNDS, greedy, sampled, 1.1)
    greedy, sampled = Decoding(False, 64), Decoding(True, 64, (), 0.7, 0.95, 0)
    dtype = choose_dtype()
    for number, model in enumerate(list_models("generation")):
        pair = Pair(model.name, folder / str(number), model, dtype, BATCH)
        chats = [pair.begin_chat(problem) for problem in problems[:PROBLEMS]]
        parts = [chats[first : first + PART] for first in range(0, PROBLEMS, PART)]
        goal = GOAL_OF_LARGE if read_vocabulary_size(model) > LARGE else GOAL
        yield pair.compare(parts, greedy, sampled, 1 / goal)
        yield pair.compare([chats] * GREEDY_ROUNDS, Decoding(False, 200), None, 1 / GOAL_OF_GREEDY)


class Pair:
    """Our sampler and lm-eval's model, with the same weights and batches."""

    def __init__(self, name: str, folder: Path, model: Path, dtype: str, batch: int) -> None:
        from lm_eval.models.huggingface import HFLM

        folders = {"pretrained": str(model), "device": "cpu"}
        arguments = {**folders, "dtype": dtype, "batch_size": batch}
        self.sampler: Any = load_plugins().create_sampler(SamplerSettings("hf", arguments), None)
        self.lm = HFLM(**arguments)
        self.lm.model.generation_config = self.sampler._sampler._lm.model.generation_config
        self.name = f"{name}, {dtype}"
        self._stores = (folder / str(n) for n in itertools.count())

    def compare(
        self,
        parts: Sequence[Sequence[Problem]],
        greedy: Decoding,
        sampled: Decoding | None,
        limit: float,
    ) -> Figure:
        """Compare greedy decodes and K samples, or greedy decodes alone; each part is a round."""
        ours, others = iter(parts), iter(parts)
        samples = build_sample_phases(sampled, K) if sampled else []
        phases = [build_single_phase(greedy), *samples]
        ratio, own_s, bare_s = time_in_turn(
            lambda: self.generate(next(ours), phases),
            lambda: self.generate_with_lm_eval(next(others), greedy, sampled),
            len(parts),
            clock=time.process_time,
        )
        detail = f"{1 / ratio:.1f} times as fast: {own_s:.1f} s against {bare_s:.1f} s"
        what = "search" if sampled else "greedy"
        return Figure(f"{self.name}: {what} / lm-eval's hf", ratio, limit, detail=detail)

    def begin_chat(self, problem: Problem) -> Problem:
        """Return a problem of the demo after examples, as turns of the model's chat."""
        turns = [*SHOT * 4, {"role": "user", "content": problem.prompt}]
        return replace(problem, prompt=self.lm.apply_chat_template(turns))

    def generate(self, problems: Sequence[Problem], phases: list[DecodePhase]) -> None:
        generate_missing(next(self._stores), problems, phases, self.sampler, chunk=200)

    def generate_with_lm_eval(
        self, problems: Sequence[Problem], greedy: Decoding, sampled: Decoding | None
    ) -> None:
        from lm_eval.api.instance import Instance

        decodes = [(greedy, 1), (sampled, K)] if sampled else [(greedy, 1)]
        for decoding, repeats in decodes:
            kwargs: dict[str, Any] = {
                "until": list(decoding.until), "max_gen_toks": decoding.max_gen_toks,
                "do_sample": decoding.do_sample,
            }  # fmt: skip
            if decoding.do_sample:
                kwargs |= {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": 0}
            requests = [
                Instance("generate_until", {}, (problem.prompt, kwargs), 0)
                for problem in problems
                for _ in range(repeats)
            ]
            with contextlib.redirect_stderr(io.StringIO()):
                self.lm.generate_until(requests)
