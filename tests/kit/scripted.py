"""A sampler that answers from its seeds, and a verifier of prefixes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gapft_harness.core.records import Decoding, Verdict
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
)


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
