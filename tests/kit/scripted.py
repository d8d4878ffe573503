"""Samplers that answer from a script or from their seeds, and a verifier of prefixes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Decoding, Problem, Verdict
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
)
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.generation.chunks import DecodePhase, build_search_phases
from gapft_harness.stages.generation.episodes import Episodes
from gapft_harness.stages.generation.lines import Responses
from tests.generated import SINGLE, generate_missing

K = 5
ONE = Decoding(do_sample=False, max_gen_toks=4)

#: For each problem, whether the greedy decode and the K samples are right.
Script = list[list[bool]]


class ScriptedSampler:
    """Answers from the script alone; records every requested index."""

    def __init__(self, script: Script, fail_after: int | None = None) -> None:
        self.script = script
        self.asked: list[tuple[str, int]] = []
        self.calls = 0
        self._fail_after = fail_after

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        if self.calls == self._fail_after:
            raise KeyboardInterrupt
        self.calls += 1
        self.asked += [(r.problem_id, index) for r in requests for index in r.indices]
        return [
            Generated(tuple(r.text.encode()), tuple(self._write(r, index) for index in r.indices))
            for r in requests
        ]

    def _write(self, request: Request, index: int) -> Generation:
        right = self.script[int(request.problem_id[1:])][index + 1]
        last = len(request.attempts) == 1 or not request.prompt.startswith("twice")
        word = "right" if right and last else "wrong"
        text = f"{word} {request.problem_id}.{index}.{len(request.attempts)}"
        return Generation(text, tuple(text.encode()), "stop")

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class SeededSampler:
    """Derives each answer from the sample's seed alone."""

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        answers = []
        for number, request in enumerate(requests, start=1):
            texts = [str(random.Random(seed).randrange(10**9)) for seed in request.seeds]
            generations = tuple(Generation(text, (int(text) % 99,), "stop") for text in texts)
            answers.append(Generated((1, len(request.prompt)), generations))
            report(number * len(request.indices), number)
        return answers

    def describe(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


class PrefixVerifier:
    """Passes texts that begin with the gold; records every judged text."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        self.judged += responses
        pairs = zip(responses, golds, strict=True)
        return [Verdict("pass" if text.startswith(gold) else "fail", "why") for text, gold in pairs]

    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        return [None if text.startswith("right") else "again" for text in responses]


def build_recipe() -> Recipe:
    content = {
        "name": "r",
        "data": {"task": "t"},
        "model": {"args": {"pretrained": "none"}},
        "search": {"k": K, "chunk": 2},
    }
    return check_recipe(content, "test")


def build_problems(script: Script, prompt: str = "ask") -> list[Problem]:
    return [Problem(f"p{i}", f"{prompt} {i}", "right") for i in range(len(script))]


def build_phases(recipe: Recipe) -> list[DecodePhase]:
    return build_search_phases(ONE, recipe.search)


def draw(
    folder: Path,
    problems: Sequence[Problem],
    sampler: ScriptedSampler,
    recipe: Recipe,
    verifier: PrefixVerifier,
    episodes: Episodes = SINGLE,
) -> Responses:
    return generate_missing(
        folder, problems, build_phases(recipe), sampler, episodes=episodes, judge=Judge(verifier),
    )  # fmt: skip
