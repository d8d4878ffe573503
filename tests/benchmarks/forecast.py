"""How often 80% intervals of Pass@64 from 8 samples hold the truth: simulated pools, the demo.

The demo policy's truth is the unbiased estimate from the 128 samples of a problem that a forecast
did not see. Its search takes some minutes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.forecast.extrapolation import Estimates, fit
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.forecast.reading import read_run
from tests.analysis.simulated_pools import KINDS, chances, histograms
from tests.benchmarks.measure import Figure
from tests.command import succeed

POOLS, SAMPLES, K = 400, 8, 64
#: Problems of a pool: about those of the paper's audits.
SIZES = (500, 1500)
#: The demo's samples of a problem, and its problems in so many parts.
DRAWN, PARTS = 136, 5


def measure(folder: Path) -> list[Figure]:
    """The simulated pools of each kind, and the demo's audit."""
    return [*(_simulated(kind, size) for size in SIZES for kind in KINDS), _demo(folder)]


def _simulated(kind: str, problems: int) -> Figure:
    rng = np.random.default_rng([*kind.encode(), problems])
    p = chances(kind, POOLS, problems, rng)
    truth = (1 - (1 - p) ** K).mean(axis=1)
    found = fit(histograms(p, SAMPLES, rng)).pass_at_k(K)
    return _figure(f"{POOLS} pools of {problems:,} problems, {kind}", found, truth)


def _demo(folder: Path) -> Figure:
    run = folder / "demo"
    options = ("--recipe", "demo", "--split", "audit", "--set", f"search.k={DRAWN}")
    succeed("search", run, *options, timeout=3600)
    return demo_coverage(run)


def demo_coverage(run: Path) -> Figure:
    """Of a search with ``DRAWN`` samples: each 8 of them, of each part of the problems."""
    passed = read_run(run).splits["audit"].passed
    counted, truth = [], []
    for part in np.array_split(np.random.default_rng(0).permutation(len(passed)), PARTS):
        for first in range(0, DRAWN, SAMPLES):
            seen = np.zeros(DRAWN, dtype=bool)
            seen[first : first + SAMPLES] = True
            passing = passed[part][:, seen].sum(axis=1)
            counted.append(np.bincount(passing, minlength=SAMPLES + 1))
            others = passed[part][:, ~seen].sum(axis=1)
            truth.append(float(mean_pass_at_k(others, DRAWN - SAMPLES, K)))
    found = fit(np.array(counted)).pass_at_k(K)
    return _figure(f"the demo's audit, {len(truth)} searches", found, np.array(truth))


def _figure(name: str, found: Estimates, truth: NDArray[np.float64]) -> Figure:
    inside = (found.low <= truth) & (truth <= found.high)
    detail = (
        f"truth below {np.mean(truth < found.low):.0%}, above {np.mean(truth > found.high):.0%}; "
        f"mean width {100 * np.mean(found.high - found.low):.1f} points, mean error "
        f"{100 * np.mean(found.value - truth):+.1f}"
    )
    return Figure(name, 100 * float(inside.mean()), None, "%", detail)
