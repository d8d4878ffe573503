"""A sampler that answers from its seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gapft_harness.core.records import Decoding
from gapft_harness.hooks.protocols import Generated, Generation, ReportGeneration, Request


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
