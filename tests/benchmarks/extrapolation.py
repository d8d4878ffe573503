"""How often 95% bounds of Pass@k from 8 samples miss the truth, and how wide they are.

Simulated pools (``simulated_pools``) take about three minutes, the demo policy's audit longer; its
truth is the unbiased estimate from 128 samples per problem that the bounds do not use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.extrapolation import MULTIPLES, bound_pass_at_k
from gapft_harness.analysis.pass_at_k import mean_pass_at_k
from gapft_harness.gap.searched import read_run
from tests.analysis.simulated_pools import (
    KINDS,
    REPORTED_ON,
    SAMPLES,
    SIZES,
    draw_pools,
    is_inside,
)
from tests.benchmarks.measure import Figure
from tests.command import succeed

POOLS = 400
#: Percent of 400 bounds that may miss: 5% plus three standard errors.
LIMIT = 8.3
#: Pools of each kind whose bounds at 8 times as many samples are measured for information.
FARTHER = 100
#: The demo's samples per problem, and the number of parts of its problems.
DRAWN, PARTS = 136, 5


def measure(folder: Path) -> Iterator[Figure]:
    """Measure simulated pools of each kind and size, and the demo's audit."""
    for multiple in (*MULTIPLES, 2 * MULTIPLES[-1]):
        k, planned = multiple * SAMPLES, multiple in MULTIPLES
        count, limit = (POOLS, LIMIT) if planned else (FARTHER, None)
        for size in SIZES:
            for kind in KINDS:
                pairs = (
                    (bound_pass_at_k(pool.passing, SAMPLES, k), pool.pass_at(k))
                    for pool in draw_pools(kind, count, size, REPORTED_ON)
                )
                yield build_figure(f"Pass@{k}, {count} pools of {size:,}, {kind}", pairs, limit)
    run = folder / "demo"
    options = ("--only", "search", "--split", "audit", "--set", f"search.k={DRAWN}")
    succeed("run", "demo", "--run-dir", run, *options, timeout=3600)
    passed = read_run(run).splits["audit"].passed
    for multiple in MULTIPLES:
        k = multiple * SAMPLES
        yield build_figure(f"Pass@{k}, the demo's audit in {PARTS} parts", bound_demo(passed, k))


def bound_demo(passed: np.ndarray, k: int) -> Iterator[tuple[Interval, float]]:
    """Yield bounds from every 8 samples of each part, and the whole audit's Pass@k."""
    for part in np.array_split(np.random.default_rng(0).permutation(len(passed)), PARTS):
        for first in range(0, DRAWN, SAMPLES):
            seen = np.zeros(DRAWN, dtype=bool)
            seen[first : first + SAMPLES] = True
            truth = mean_pass_at_k(passed[:, ~seen].sum(axis=1), DRAWN - SAMPLES, k)
            passing = passed[part][:, seen].sum(axis=1)
            yield bound_pass_at_k(passing, SAMPLES, k), float(truth)


def build_figure(
    name: str, pairs: Iterable[tuple[Interval, float]], limit: float | None = None
) -> Figure:
    bounds, truths = zip(*pairs, strict=True)
    missed = [not is_inside(*pair) for pair in zip(bounds, truths, strict=True)]
    width = 100 * float(np.mean([bound.high - bound.low for bound in bounds]))
    return Figure(
        name, 100 * float(np.mean(missed)), limit, "% missed", f"mean width {width:.1f} points"
    )
