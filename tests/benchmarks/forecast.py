"""How often 80% intervals of Pass@64 from 8 samples hold the truth: simulated pools, the demo.

The pools are those that no choice of the method was made on (``simulated_pools``). Beside each
figure stands that of the method before it, of beta distributions alone weighed by all of their
evidence. The demo policy's truth is the unbiased estimate from the 128 samples of a problem that a
forecast did not see. Its search takes some minutes, and so do the pools.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.forecast.extrapolation import DECISIVE, Fit, fit
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.forecast.reading import read_run
from tests.analysis.simulated_pools import KINDS, REPORTED_ON, SIZES, UNLIKE, pools
from tests.benchmarks.measure import Figure
from tests.command import succeed

POOLS, SAMPLES, K = 400, 8, 64
#: The demo's samples of a problem, and its problems in so many parts.
DRAWN, PARTS = 136, 5


def measure(folder: Path) -> list[Figure]:
    """The simulated pools of each kind, and the demo's audit."""
    kinds = (*KINDS, UNLIKE)
    return [*(_simulated(kind, size) for size in SIZES for kind in kinds), _demo(folder)]


def _simulated(kind: str, problems: int) -> Figure:
    truth, counts = pools(kind, POOLS, problems, REPORTED_ON)
    return _figure(f"{POOLS} pools of {problems:,} problems, {kind}", fit(counts), truth)


def _demo(folder: Path) -> Figure:
    run = folder / "demo"
    options = ("--only", "search", "--split", "audit", "--set", f"search.k={DRAWN}")
    succeed("run", "demo", "--run-dir", run, *options, timeout=3600)
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
    found = fit(np.array(counted))
    return _figure(f"the demo's audit, {len(truth)} searches", found, np.array(truth))


def _figure(name: str, found: Fit, truth: NDArray[np.float64]) -> Figure:
    covered, detail = _said(found, truth)
    before, of_before = _said(_before(found), truth)
    return Figure(
        name, covered, None, "%", f"{detail}; the method before: {before:.1f}%, {of_before}"
    )


def _said(found: Fit, truth: NDArray[np.float64]) -> tuple[float, str]:
    of = found.pass_at_k(K)
    inside = (of.low <= truth) & (truth <= of.high)
    detail = (
        f"truth below {np.mean(truth < of.low):.1%}, above {np.mean(truth > of.high):.1%}; "
        f"mean width {100 * np.mean(of.high - of.low):.1f} points, mean error "
        f"{100 * np.mean(of.value - truth):+.1f}"
    )
    return 100 * float(inside.mean()), detail


def _before(found: Fit) -> Fit:
    """The beta families alone, by their whole evidence."""
    power = DECISIVE / (DECISIVE + found.histograms.sum(axis=1))
    kept = [family for family in found.points if family.shape == "beta"]
    logs = np.log(np.maximum([found.weights[family] for family in kept], 1e-300)) / power
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    return replace(
        found,
        points={family: found.points[family] for family in kept},
        weights=dict(zip(kept, weights, strict=True)),
    )
