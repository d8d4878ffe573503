"""``gapft --help`` compared with ``lm_eval --help``, and a repeated finished run."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from gapft_harness.store.store import STORE_VARIABLE
from tests.benchmarks.measure import Figure, run_process, time_in_turn


def measure(folder: Path) -> list[Figure]:
    """Time five rounds of whole processes; compare processor time for the finished run."""
    ours = [sys.executable, "-m", "gapft_harness.cli.main", "--help"]
    other = [sys.executable, "-m", "lm_eval", "--help"]
    run_process(ours, folder)
    run_process(other, folder)
    ratio, a, b = time_in_turn(
        lambda: run_process(ours, folder), lambda: run_process(other, folder), rounds=5
    )
    return [
        Figure("gapft --help / lm_eval --help", ratio, 1.0, detail=f"{a:.2f} s against {b:.2f} s"),
        *measure_finished_run(folder, ours),
    ]


def measure_finished_run(folder: Path, help_command: list[str]) -> list[Figure]:
    """Compare repeating a finished run's command with ``--help``."""
    run = [sys.executable, "-m", "gapft_harness.cli.main", "run", "demo", "--run-dir", "run"]
    words = ["--limit", "20", "--condition", "gapft", "--seed", "13"]
    store = {STORE_VARIABLE: str(folder / "store"), "XDG_CACHE_HOME": str(folder / "cache")}
    for _ in range(2):  # the second one, seconds later, records the finished state
        run_process([*run, *words], folder, store)
        time.sleep(2.1)

    def measure_processor_time(command: list[str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run_process(command, folder, store)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [
        (measure_processor_time([*run, *words]), measure_processor_time(help_command))
        for _ in range(5)
    ]
    again, short = (min(times) for times in zip(*pairs, strict=True))
    detail = f"{again:.2f} s against {short:.2f} s of processor time"
    return [Figure("a finished run again / gapft --help", again / short, 3.0, detail=detail)]
