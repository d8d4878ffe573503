"""How often the band of a difference of Pass@k curves contains the true curve at all k.

Studies are simulated (``tests/analysis/simulated_curves.py``): 300 problems, 8 samples of each
before and under each training seed. A figure is the distance of the coverage from 95 points; its
detail is how often the set of first k behind contains the true k. Two minutes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gapft_harness.analysis.curves import compare_curves
from gapft_harness.core.streams import Stream
from tests.analysis.simulated_curves import (
    EFFECTS,
    KS,
    SAMPLES,
    SEED_EFFECTS,
    compute_true_curves,
    simulate_studies,
)
from tests.benchmarks.measure import Figure

#: Studies per setting; the standard error of a coverage of 95% is 0.7 points.
STUDIES, PROBLEMS, SEED = 1_000, 300, 11
#: Training seeds, and the allowed distance of the coverage from 95 points.
LIMITS = {2: None, 3: 3.5, 5: 3.0, 8: 3.0}


def measure(folder: Path) -> list[Figure]:
    """Measure coverage by number of training seeds, training effect and seed variation."""
    return [
        build_figure(seeds, effect, seed_effect)
        for seeds in LIMITS
        for effect in EFFECTS
        for seed_effect in SEED_EFFECTS
    ]


def simulate_coverage(
    seeds: int, effect: str, seed_effect: float, count: int, seed: int
) -> tuple[float, float]:
    """Return the shares of studies whose band contains the truth, and whose set the true k."""
    source, tuned = compute_true_curves(effect, seed_effect)
    true = tuned - source
    behind = next((k for k, difference in zip(KS, true, strict=True) if difference < 0), None)
    held = behind_held = 0
    drawn = simulate_studies(effect, seed_effect, seeds, PROBLEMS, count, seed)
    for number, (before, after) in enumerate(drawn):
        stream = Stream(seed, f"study/{number}")
        comparison = compare_curves(before, SAMPLES, after, SAMPLES, KS, stream=stream)
        assert comparison.low is not None
        assert comparison.high is not None
        held += bool(np.all((comparison.low <= true) & (true <= comparison.high)))
        behind_held += behind in comparison.behind_set
    return held / count, behind_held / count


def build_figure(seeds: int, effect: str, seed_effect: float) -> Figure:
    held, behind_held = simulate_coverage(seeds, effect, seed_effect, STUDIES, SEED)
    return Figure(
        f"{seeds} seeds, effect {effect}, seeds differ by {seed_effect}",
        100 * abs(held - 0.95),
        LIMITS[seeds],
        "points",
        detail=f"band {held:.1%}, first k behind {behind_held:.1%}",
    )
