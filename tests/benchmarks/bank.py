"""What a bank costs: an arm more of the demo's policy, and the report's scores of 256 arms."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from gapft_harness.api import AttributionItem, Bank
from gapft_harness.core.records import Arm
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.bank import score
from gapft_harness.hooks.manager import load_plugins
from tests.benchmarks.measure import Figure, process

ROOT = Path(__file__).parents[2]
#: Arms of the first command, and how many the second adds.
FIRST, MORE = 8, 8
ARMS, EXAMPLES, PROBLEMS, SLOTS, REPLICATES = 256, 400, 1_000, 64, 2_000


def measure(folder: Path) -> list[Figure]:
    """Wall time on one worker, and processor time of each method with its scores."""
    return [_arm(folder), *_scores()]


def _arm(folder: Path) -> Figure:
    seconds = []
    for last in (FIRST - 1, FIRST + MORE - 1):
        command = [sys.executable, "-m", "gapft_harness.cli.main", "run", "controls/bank"]
        command += ["--run-dir", str(folder / "bank"), "--set", f"seeds=0-{last}"]
        command += ["--set", "executor.workers=1"]
        seconds.append(process(command, folder, {"PYTHONPATH": str(ROOT)}).seconds)
    added = seconds[1] / MORE
    detail = f"{MORE} arms added to {FIRST} of the demo's policy, start and report among it"
    return Figure("an arm: 32 steps, 1,000 decodes", added, None, "s", detail)


def _scores() -> list[Figure]:
    rng = np.random.default_rng(0)

    def item(number: int) -> AttributionItem:
        prompt = f"Calculate {' '.join(f'{n:+}' for n in rng.integers(-99, 99, size=4))}."
        return AttributionItem(f"q{number:05}", "GS"[number % 2], 0.5, prompt, "", (), ())

    examples, problems = (tuple(map(item, range(count))) for count in (EXAMPLES, PROBLEMS))
    slots = tuple(tuple(rng.permutation(EXAMPLES)[:SLOTS].tolist()) for _ in range(ARMS))
    passed = rng.random((ARMS, PROBLEMS)) < 0.5
    arms = tuple(Arm("bank", seed) for seed in range(ARMS))
    bank = Bank(arms, examples, problems, slots, passed, passed[0])
    figures = []
    for name in ("states", "similarity", "datamodel"):
        method, start = load_plugins().get("attribution", name), time.process_time()
        list(score(bank, name, method, {}, REPLICATES, Stream(0, "benchmark")))
        took = time.process_time() - start
        what = f"{name}: {ARMS} arms x {EXAMPLES} examples x {PROBLEMS:,} problems"
        figures.append(Figure(what, took, 5.0, "s", f"{REPLICATES:,} replicates"))
    return figures
