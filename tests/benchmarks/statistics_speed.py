"""Bootstrap replicates compared with a plain numpy loop."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from gapft_harness.analysis.resampling import Scores, resample
from gapft_harness.core.streams import Stream
from tests.benchmarks.measure import Figure, time_in_turn

ARMS, SEEDS, ROUNDS = 4, 3, 5
#: LogiQA's audit without repeated problems.
ITEMS = 1367
REPLICATES = 20_000
#: The plain loop draws one in this many; its time is multiplied.
SHARE = 10


def measure(folder: Path) -> list[Figure]:
    """Compare processor time of both in turn, on one thread."""
    generator = np.random.default_rng(0)
    passed = generator.random((ARMS, SEEDS, ITEMS)) < 0.6
    source = generator.random(ITEMS) < 0.5
    ids = np.array([f"q{i:05}" for i in range(ITEMS)])
    rows = {f"arm {number}": row for number, row in enumerate(passed)}
    rows["source"] = np.broadcast_to(source, (SEEDS, ITEMS))
    scores = Scores(rows, np.array([13, 21, 73]), ids)

    def ours() -> None:
        resample(scores, replicates=REPLICATES, stream=Stream(0, "benchmark"))

    def loop() -> None:
        draws = np.random.default_rng(1)
        replicates = np.empty((REPLICATES // SHARE, ARMS + 1))
        for row in replicates:
            of_seeds, items = draws.integers(SEEDS, size=SEEDS), draws.integers(ITEMS, size=ITEMS)
            row[:ARMS] = passed[:, of_seeds][:, :, items].mean(axis=(1, 2))
            row[ARMS] = source[items].mean()

    ours()  # loads numpy and its linear algebra
    ratio, own_s, loop_s = time_in_turn(ours, loop, ROUNDS, clock=time.process_time)
    what = f"{REPLICATES:,} replicates, {SEEDS} seeds x {ITEMS:,} items x {ARMS} arms"
    detail = f"{own_s:.2f} s against {SHARE * loop_s:.2f} s; {SHARE / ratio:.1f} times as fast"
    return [Figure(f"{what}, time / plain loop", ratio / SHARE, 1 / 4, detail=detail)]
