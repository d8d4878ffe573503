"""Rejudged responses per second, compared with the verifier alone on every core.

The judge of ``gapft rejudge`` gets the pairs in portions; the verifier alone gets the same distinct
pairs in one process. The figure is the first time over the second divided by the cores; 1 means no
overhead on all cores.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from gapft_harness.core.records import Gold
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.rejudge.choice import Rule
from gapft_harness.rejudge.judge import CHUNK_SIZE, open_judge
from gapft_harness.stages.generation.sealing import closing_verifier
from tests.benchmarks.measure import Figure, time_in_turn

#: The number of problems and samples by rule; all responses differ.
RULES = (
    (Rule("option_letter", {"rule": "first_explicit"}), 130, 63),
    (Rule("math"), 50, 31),
)
ROUNDS, STEPS, LIMIT = 3, 12, 1.5
CORES = min(8, os.cpu_count() or 1)


def measure(folder: Path) -> list[Figure]:
    """Measure a verifier created in several processes, and one with its own processes."""
    return [measure_rule(rule, *sizes) for rule, *sizes in RULES]


def measure_rule(rule: Rule, problems: int, samples: int) -> Figure:
    pairs = make_pairs(problems, samples, letters=rule.name == "option_letter")
    texts, golds = [text for text, _ in pairs], [gold for _, gold in pairs]
    own = rule.name == "math"
    plugins = load_plugins([])
    with (
        closing_verifier(plugins.create_verifier(rule.name, rule.params)) as verifier,
        open_judge(rule) as judge,
    ):

        def again() -> None:
            for start in range(0, len(pairs), CHUNK_SIZE):
                portion = slice(start, start + CHUNK_SIZE)
                assert len(judge.judge(texts[portion], golds[portion])) == len(texts[portion])

        def alone() -> None:
            assert len(verifier.verify(texts, golds)) == len(pairs)

        for way in (again, alone):
            way()  # starts the workers
        _, ours, other = time_in_turn(again, alone, ROUNDS)
    # a verifier with its own workers already uses every core
    ratio = ours / (other if own else other / CORES)
    detail = (
        f"{len(pairs) / ours:,.0f} a second, the verifier alone {len(pairs) / other:,.0f}"
        f"{'' if own else f' in one process, {CORES} cores'}"
    )
    return Figure(f"{len(pairs):,} responses, {rule.name}", ratio, LIMIT, "times", detail)


def make_pairs(problems: int, samples: int, *, letters: bool) -> list[tuple[str, Gold]]:
    """Make responses, one greedy and ``samples`` to each problem, each with its gold answer."""
    rng = random.Random(7)
    pairs: list[tuple[str, Gold]] = []
    for number in range(problems):
        gold = "ABCD"[number % 4] if letters else str(number)
        for _ in range(1 + samples):
            steps = " ".join(f"Step {s}: {rng.random():.12f} is less." for s in range(STEPS))
            answer = (
                rng.choice("ABCD") if letters else f"\\frac{{{2 * rng.randrange(problems)}}}{{2}}"
            )
            text = (
                f"{steps} The answer is ({answer})." if letters else f"{steps} \\boxed{{{answer}}}"
            )
            pairs.append((text, gold))
    return pairs
