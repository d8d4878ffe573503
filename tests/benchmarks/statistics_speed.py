"""Bootstrap replicates and permutations compared with plain numpy loops."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gapft_harness.analysis.bootstrap import draw_replicates
from gapft_harness.analysis.redistribution import redistribute
from gapft_harness.core.streams import Stream
from tests.benchmarks.measure import Figure, time_in_turn

ARMS, SEEDS, ROUNDS = 4, 3, 5
#: LogiQA's audit without and with repeated problems, the latter by G, S and U.
ITEMS, STATES = 1367, {"G": 770, "S": 416, "U": 386}
REPLICATES, PERMUTATIONS = 20_000, 10_000
#: The plain loop draws one in this many; its time is multiplied.
SHARE = 10


def measure(folder: Path) -> list[Figure]:
    """Compare processor time of both in turn, on one thread."""
    return [*measure_bootstrap(), *measure_permutations()]


def measure_bootstrap() -> list[Figure]:
    generator = np.random.default_rng(0)
    passed = generator.random((ARMS, SEEDS, ITEMS)) < 0.6
    source = generator.random(ITEMS) < 0.5
    ids = np.array([f"q{i:05}" for i in range(ITEMS)])
    seeds = np.array([13, 21, 73])

    def ours() -> None:
        stream = Stream(0, "benchmark")
        draw_replicates(
            passed, source, item_ids=ids, seeds=seeds, replicates=REPLICATES, stream=stream
        )

    def loop() -> None:
        draws = np.random.default_rng(1)
        replicates = np.empty((REPLICATES // SHARE, ARMS + 1))
        for row in replicates:
            of_seeds, items = draws.integers(SEEDS, size=SEEDS), draws.integers(ITEMS, size=ITEMS)
            row[:ARMS] = passed[:, of_seeds][:, :, items].mean(axis=(1, 2))
            row[ARMS] = source[items].mean()

    what = f"{REPLICATES:,} replicates, {SEEDS} seeds x {ITEMS:,} items x {ARMS} arms"
    return build_figures(what, ours, loop, 1 / 4)


def measure_permutations() -> list[Figure]:
    generator = np.random.default_rng(0)
    states = np.repeat([*STATES], [*STATES.values()])
    items = len(states)
    ids = np.array([f"q{i:05}" for i in range(items)])
    answers = generator.integers(4, size=(SEEDS, items))
    golds, source = generator.integers(4, size=items), generator.integers(4, size=items)
    groups = [
        [np.flatnonzero((states == state) & (source == answer)) for answer in range(4)]
        for state in ("S", "U")
    ]

    def ours() -> None:
        stream = Stream(0, "benchmark")
        redistribute(
            answers, golds, source, states, item_ids=ids, permutations=PERMUTATIONS, stream=stream
        )

    def loop() -> None:
        draws = np.random.default_rng(1)
        for _ in range(PERMUTATIONS // SHARE):
            for strata in groups:
                right = 0
                for stratum in strata:
                    right += np.count_nonzero(
                        answers[:, draws.permutation(stratum)] == golds[stratum]
                    )

    what = f"{PERMUTATIONS:,} stratified permutations, {SEEDS} seeds x {items:,} items"
    return build_figures(what, ours, loop, None)


def build_figures(
    what: str, ours: Callable[[], None], loop: Callable[[], None], limit: float | None
) -> list[Figure]:
    """Return our time and its ratio to the loop's, which makes a share of the draws."""
    ours()  # loads numpy and its linear algebra
    ratio, own_s, loop_s = time_in_turn(ours, loop, ROUNDS, clock=time.process_time)
    detail = f"{own_s:.2f} s against {SHARE * loop_s:.2f} s; {SHARE / ratio:.1f} times as fast"
    return [
        Figure(what, own_s, 1.0, unit="s"),
        Figure(f"{what}, time / plain loop", ratio / SHARE, limit, detail=detail),
    ]
