"""``gapft --help`` compared with ``lm_eval --help``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.benchmarks.measure import Figure, run_process, time_in_turn


def measure(folder: Path) -> list[Figure]:
    """Time five rounds of whole processes."""
    ours = [sys.executable, "-m", "gapft_harness.cli.main", "--help"]
    other = [sys.executable, "-m", "lm_eval", "--help"]
    run_process(ours, folder)
    run_process(other, folder)
    ratio, a, b = time_in_turn(
        lambda: run_process(ours, folder), lambda: run_process(other, folder), rounds=5
    )
    return [
        Figure("gapft --help / lm_eval --help", ratio, 1.0, detail=f"{a:.2f} s against {b:.2f} s")
    ]
