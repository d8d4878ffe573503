"""The findings of an allocation comparison: coverage against repetition, seed by seed and mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gapft_harness.analysis.allocation import (
    Successes,
    Value,
    mean_successes,
    replicate_successes,
    successes,
)
from gapft_harness.analysis.bootstrap import Interval, percentile_interval
from gapft_harness.core.records import Budget
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.allocation.reading import Exposures
from gapft_harness.report.reading.inputs import ReportInputs

#: What is reported, by its name in results.json, in the order of the report.
RATES = ("a_A_1", "a_A_2", "a_B_0", "a_B_1")
DIFFERENCES = ("coverage_gain", "repetition_loss", "contrast")
QUANTITIES = (*RATES, *DIFFERENCES)


@dataclass(frozen=True, slots=True)
class CoverageSeed:
    """One seed's comparison.

    Attributes:
        problems: of each half.
        replay: slots of solved problems, the same examples in both conditions.
        diffuse: that arm's budget.
        concentrated: the other's.
    """

    problems: int
    replay: int
    found: Successes[Fraction]
    diffuse: Budget
    concentrated: Budget


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage against repetition of two conditions.

    Attributes:
        repetitions: R; a problem selected r times was seen r R times in training.
        mean: over seeds, each counting the same.
        intervals: by the names of ``QUANTITIES``.
        seeds: by seed, ascending.
    """

    diffuse: str
    concentrated: str
    repetitions: int
    mean: Successes[Fraction]
    intervals: Mapping[str, Interval]
    seeds: Mapping[int, CoverageSeed]


def quantities(of: Successes[Value]) -> dict[str, Value]:
    """The reported quantities by name."""
    values = (of.a_1, of.a_2, of.b_0, of.b_1, of.coverage_gain, of.repetition_loss, of.contrast)
    return dict(zip(QUANTITIES, values, strict=True))


def compute_coverage(inputs: ReportInputs, exposures: Exposures) -> Coverage:
    """Computes the comparison. ``inputs`` must be ``in_order()``."""
    once, twice = (
        {trained.arm.seed: trained.budget for trained in inputs.of(name)}
        for name in (exposures.diffuse, exposures.concentrated)
    )
    seeds = {
        of.seed: CoverageSeed(
            problems=len(of.ids) // 2,
            replay=of.replay,
            found=successes(of.halves, of.diffuse_passed, of.concentrated_passed),
            diffuse=once[of.seed],
            concentrated=twice[of.seed],
        )
        for of in exposures.seeds
    }
    return Coverage(
        diffuse=exposures.diffuse,
        concentrated=exposures.concentrated,
        repetitions=next(iter(once.values())).repetitions,
        mean=mean_successes([seed.found for seed in seeds.values()]),
        intervals=_intervals(inputs, exposures),
        seeds=seeds,
    )


def _intervals(inputs: ReportInputs, exposures: Exposures) -> dict[str, Interval]:
    """Puts the seeds' problems into arrays over the union of all, and resamples."""
    ids = np.unique(np.concatenate([of.ids for of in exposures.seeds]))
    shape = len(exposures.seeds), len(ids)
    halves = np.full(shape, "", dtype="U1")
    diffuse, concentrated = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    for row, of in enumerate(exposures.seeds):
        places = np.searchsorted(ids, of.ids)
        halves[row, places] = of.halves
        diffuse[row, places] = of.diffuse_passed
        concentrated[row, places] = of.concentrated_passed
    statistics = inputs.recipe["statistics"]
    replicates = replicate_successes(
        halves,
        diffuse,
        concentrated,
        item_ids=ids,
        seeds=np.array([of.seed for of in exposures.seeds], dtype=np.int64),
        replicates=statistics["replicates"],
        stream=Stream(statistics["seed"], "report/allocation"),
    )
    return {name: percentile_interval(of) for name, of in quantities(replicates).items()}
