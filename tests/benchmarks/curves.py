"""How often the band of a difference of Pass@k curves holds the true one, at all k together.

Studies are simulated (``tests/analysis/simulated_curves.py``): 300 problems, 8 samples of each
before and under each training seed. A figure is the distance of the coverage from 95 points;
beside it stands how often the set of first k behind holds the true one. Two minutes.
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

#: Of each setting; the standard error of a coverage of 95% is 0.7 points.
STUDIES, PROBLEMS, SEED = 1_000, 300, 11
#: Training seeds, and how far from 95 points the coverage may be; of two the band is wider.
LIMITS = {2: None, 3: 3.5, 5: 3.0, 8: 3.0}


def measure(folder: Path) -> list[Figure]:
    """Coverage by the number of training seeds, by what training does and how seeds differ."""
    return [
        _figure(seeds, effect, seed_effect)
        for seeds in LIMITS
        for effect in EFFECTS
        for seed_effect in SEED_EFFECTS
    ]


def coverage(
    seeds: int, effect: str, seed_effect: float, count: int, seed: int
) -> tuple[float, float]:
    """Shares of studies whose band holds the true difference, and whose set its first k behind."""
    source, tuned = compute_true_curves(effect, seed_effect)
    true = tuned - source
    behind = next((k for k, one in zip(KS, true, strict=True) if one < 0), None)
    held = named = 0
    drawn = simulate_studies(effect, seed_effect, seeds, PROBLEMS, count, seed)
    for number, (before, after) in enumerate(drawn):
        stream = Stream(seed, f"study/{number}")
        found = compare_curves(before, SAMPLES, after, SAMPLES, KS, stream=stream)
        assert found.low is not None
        assert found.high is not None
        held += bool(np.all((found.low <= true) & (true <= found.high)))
        named += behind in found.behind_set
    return held / count, named / count


def _figure(seeds: int, effect: str, seed_effect: float) -> Figure:
    held, named = coverage(seeds, effect, seed_effect, STUDIES, SEED)
    return Figure(
        f"{seeds} seeds, effect {effect}, seeds differ by {seed_effect}",
        100 * abs(held - 0.95),
        LIMITS[seeds],
        "points",
        detail=f"band {held:.1%}, first k behind {named:.1%}",
    )
