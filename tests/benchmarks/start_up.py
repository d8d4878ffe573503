"""``gapft --help`` against ``lm_eval --help``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.benchmarks.measure import Figure, in_turn, process


def measure(folder: Path) -> list[Figure]:
    """Five rounds of whole processes."""
    ours = [sys.executable, "-m", "gapft_harness.cli.main", "--help"]
    other = [sys.executable, "-m", "lm_eval", "--help"]
    process(ours, folder)
    process(other, folder)
    ratio, a, b = in_turn(lambda: process(ours, folder), lambda: process(other, folder), rounds=5)
    return [
        Figure("gapft --help / lm_eval --help", ratio, 1.0, detail=f"{a:.2f} s against {b:.2f} s")
    ]
