"""Coverage against repetition for programs: results.json, allocation.csv and exposed.csv."""

from __future__ import annotations

from typing import Any

from gapft_harness.experiments.allocation.findings import Coverage, quantities
from gapft_harness.experiments.allocation.reading import Exposures
from gapft_harness.report.part import Rows
from gapft_harness.report.reading.columns import STATUSES


def content(coverage: Coverage) -> dict[str, Any]:
    """For results.json."""
    mean = quantities(coverage.mean)
    return {
        "diffuse": coverage.diffuse,
        "concentrated": coverage.concentrated,
        "R": coverage.repetitions,
        **{
            name: {"mean": float(mean[name]), "ci95": [interval.low, interval.high]}
            for name, interval in coverage.intervals.items()
        },
        "seeds": {
            str(seed): {
                "problems_a_half": of.problems,
                "replay": of.replay,
                **{name: float(value) for name, value in quantities(of.found).items()},
                "L_supervised": {
                    "diffuse": of.diffuse.supervised_tokens,
                    "concentrated": of.concentrated.supervised_tokens,
                },
            }
            for seed, of in coverage.seeds.items()
        },
    }


def quantity_rows(coverage: Coverage) -> Rows:
    """Each quantity's mean with its interval, then every seed."""
    yield "quantity", "seed", "value", "ci95_low", "ci95_high"
    for name, value in quantities(coverage.mean).items():
        interval = coverage.intervals[name]
        yield name, "mean", float(value), interval.low, interval.high
        for seed, of in coverage.seeds.items():
            yield name, seed, float(quantities(of.found)[name]), "", ""


def problem_rows(exposures: Exposures) -> Rows:
    """Every compared problem: its half, and how often each condition selected it."""
    yield (
        "seed", "problem_id", "half", "selected_diffuse", "selected_concentrated",
        "verdict_diffuse", "verdict_concentrated",
    )  # fmt: skip
    for of in exposures.seeds:
        for row in zip(of.ids, of.halves, of.diffuse, of.concentrated, strict=True):
            problem_id, half, diffuse, concentrated = row
            yield (
                of.seed,
                problem_id,
                half,
                1,
                2 if half == "A" else 0,
                STATUSES[int(diffuse)],
                STATUSES[int(concentrated)],
            )
