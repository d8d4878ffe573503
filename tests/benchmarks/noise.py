"""Planted components of a gain's variance: how near the recovered ones are, and what is predicted.

Each simulated experiment has 8 training seeds with a replicate of each cause. A figure is how far
the mean of the recovered variances is from the planted one; and how far from 80% the share of 20
fresh replicates is that fall into the 80% prediction interval of these seeds. A choice of examples
that moves little beside the rest is estimated too high, since no variance is below 0; of that case
the figure is how often the 95% interval holds it. And what a replicate costs beside an arm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gapft_harness.analysis.variance import components, prediction_interval
from gapft_harness.core.streams import Stream
from tests.benchmarks.measure import Figure
from tests.command import succeed

EXPERIMENTS, SEEDS, PROBLEMS, FRESH = 1_000, 8, 400, 20
#: Standard deviations in points, of each cause.
PLANTED = {"none": 0.3, "order": 0.8, "dropout": 0.5, "adapter": 1.0, "selection": 1.2}
#: The same, and a choice of examples that moves little beside them.
SMALL = {**PLANTED, "selection": 0.4}
#: Of the three that a replicate ``all`` draws anew, and the engine.
THREE = ("order", "dropout", "adapter", "none")


def experiment(
    rng: np.random.Generator, planted: Mapping[str, float]
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Gains of training seeds, of their replicates, and a fresh seed's for each of ``FRESH``."""
    drawn = {cause: rng.normal(0, sd / 100, SEEDS) for cause, sd in planted.items()}
    gains = 0.1 + sum(drawn.values())
    replicates = {}
    for cause in ("none", "order", "dropout", "adapter", "all"):
        anew = THREE if cause == "all" else tuple(dict.fromkeys((cause, "none")))
        kept = sum(of for name, of in drawn.items() if name not in anew)
        again = sum(rng.normal(0, planted[name] / 100, SEEDS) for name in anew)
        replicates[cause] = 0.1 + kept + again
    spread = np.sqrt(sum((sd / 100) ** 2 for sd in planted.values()))
    return gains, replicates, rng.normal(0.1, spread, FRESH)


def recovered(
    experiments: int, seed: int, planted: Mapping[str, float] = PLANTED
) -> tuple[dict[str, float], dict[str, float], float]:
    """By cause the mean variance over the planted one, and how often its interval holds that.

    And the share of fresh gains inside the prediction intervals.
    """
    rng = np.random.default_rng(seed)
    truth = {cause: (sd / 100) ** 2 for cause, sd in planted.items()}
    truth["all"] = sum(truth[cause] for cause in THREE)
    sums, held, inside = dict.fromkeys(truth, 0.0), dict.fromkeys(truth, 0), 0
    for number in range(experiments):
        gains, replicates, fresh = experiment(rng, planted)
        nothing = rng.choice([-1.0, 0.0, 1.0], (SEEDS, PROBLEMS))
        for of in components(gains, replicates, nothing, Stream(seed, f"noise/{number}")):
            if of.cause in truth:
                sums[of.cause] += of.variance
                held[of.cause] += of.interval.low <= truth[of.cause] <= of.interval.high
        predicted = prediction_interval(gains)
        inside += int(((predicted.low <= fresh) & (fresh <= predicted.high)).sum())
    ratios = {cause: sums[cause] / experiments / truth[cause] for cause in truth}
    coverage = {cause: held[cause] / experiments for cause in truth}
    return ratios, coverage, inside / experiments / FRESH


def measure(folder: Path) -> list[Figure]:
    """Every cause, then the prediction."""
    ratios, coverage, inside = recovered(EXPERIMENTS, 31)
    figures = [
        Figure(
            f"variance of {cause}: recovered from planted", 100 * abs(ratio - 1), 20, "percent",
            detail=f"{ratio:.3f} times; 95% interval holds it in {coverage[cause]:.1%}",
        )
        for cause, ratio in ratios.items()
    ]  # fmt: skip
    told = f"{inside:.1%} of {EXPERIMENTS * FRESH:,} fresh replicates"
    away = 100 * abs(inside - 0.8)
    ratios, coverage, _ = recovered(EXPERIMENTS, 31, SMALL)
    missed, high = 100 * abs(coverage["selection"] - 0.95), ratios["selection"]
    figures.append(
        Figure(
            "small choice of examples: interval", missed, 4, "points",
            detail=f"holds it in {coverage['selection']:.1%}; the estimate is {high:.2f} times it",
        )
    )  # fmt: skip
    figures.append(Figure("80% prediction interval", away, 5, "points", detail=told))
    return [*figures, _cost(folder / "run")]


def _cost(run: Path) -> Figure:
    """Four replicates of the demo's arms beside four arms more, each with the start and report."""
    arms = ("conditions=[gapft, uniform]", "seeds=[13, 21]")
    more = (arms[0], "seeds=[13, 21, 42, 73]")
    replicates = "experiments.retraining_noise={conditions: [gapft, uniform], seeds: [13, 21]}"
    seconds = []
    for settings in (arms, more, (*more, replicates)):
        start = time.perf_counter()
        words = (word for setting in settings for word in ("--set", setting))
        succeed("run", "demo", "--run-dir", run, *words)
        seconds.append(time.perf_counter() - start)
    told = f"{seconds[2]:.0f} s for four replicates, {seconds[1]:.0f} s for four arms"
    return Figure("replicates / as many arms", seconds[2] / seconds[1], 1.5, detail=told)
