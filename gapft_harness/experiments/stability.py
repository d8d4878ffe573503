"""Stability of the source states over independent sample sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.decomposition import partition
from gapft_harness.analysis.stability import compute_quantities, measure_agreement, summarize
from gapft_harness.api import layout
from gapft_harness.core.records import SOURCE
from gapft_harness.report.reading.adapters import read_decided, stacked
from gapft_harness.report.reading.audits import read_samples
from gapft_harness.stages.experiment.comparable import OfAdapters
from gapft_harness.stages.search.states import Window

#: The model before training, as the arm under which its further samples are stored.
_SOURCE_ARM = api.Arm(SOURCE, 0)
#: The table of these samples, relative to the run directory.
_SAMPLES_FILE = layout.decisions_path(_SOURCE_ARM, "stability")

_AGREEMENT_NOTE = (
    "Of the audit problems that the source fails. Unstable: in S by one set and in U by a "
    "different one. Agreement (in the same state by two sets) and the Jaccard index of S: means "
    "over pairs of sets."
)
_AGREEMENT_COLUMNS = (
    api.Column("adapters", "adapters"),
    api.Column("K", "K", "count"),
    api.Column("source_failures", "source failures", "count"),
    api.Column("unstable_share", "unstable", "share"),
    api.Column("agreement", "agreement", "share"),
    api.Column("S_jaccard", "Jaccard of S", "share"),
)
_SETS_NOTE = "Audit problems in each state by the source's samples of a set; G is the same in all."
_QUANTITIES_NOTE = (
    "Shares of the audit, and rates κ within a state; means over seeds. S and U flow: p_S κ_S and "
    "p_U κ_U. Combined correction: their sum. Total gain: combined minus G regression. Range: "
    "the largest value under any set minus the smallest; of one seed: the largest range of any "
    "seed. Gain, regression and combined correction do not depend on the samples. A dash: by some "
    "set the state is empty. Rates of a state of fewer than 30 problems are unstable."
)


class StabilitySettings(OfAdapters):
    """The settings ``experiments.stability``; the defaults are those of the paper."""

    sets: int = Field(4, ge=2, description="independent sample sets")
    k: int = Field(
        8,
        ge=1,
        description="K, the samples of a set; the samples of the search come first, and the audit "
        "draws the others",
    )

    def list_windows(self) -> list[Window]:
        """List the windows of the sets; they are adjacent and share no sample."""
        return [Window(self.k * number, self.k) for number in range(self.sets)]

    def count_further_samples(self, n_drawn: int) -> int:
        """Count the samples of each audit problem that are needed beyond those of the search.

        Args:
            n_drawn: how many samples of each problem the search drew.
        """
        return max(0, self.sets * self.k - n_drawn)


class StabilityExperiment(api.Experiment):
    """Measures whether the S/U split is stable under other samples of the source."""

    name = "stability"
    title = "Stability of the source states"
    after = "Where the change comes from"
    section = StabilitySettings

    def check(self, recipe: api.Recipe, settings: StabilitySettings) -> None:
        """Require the scaled adapters that the settings ask for."""
        settings.require_scales(recipe, self.name)

    def faults(self, view: api.View) -> Iterator[str]:
        """Report a backend that cannot draw further samples."""
        if self._count_further_samples(view.recipe) and not view.generates():
            yield (
                f"needs a backend that generates: {view.recipe.model.backend!r} only replays the "
                "responses of each arm's own adapter"
            )

    def steps(self, view: api.View) -> Iterator[Sequence[api.Step]]:
        """Draw the further samples of the source."""
        if view.arms() and (samples := self._count_further_samples(view.recipe)):
            yield [view.decode(_SAMPLES_FILE, _SOURCE_ARM, samples=samples, verb="sample")]

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> Sequence[str]:
        """Count the further samples of the audit."""
        samples = self._count_further_samples(recipe)
        audit = counts["audit"]
        if not samples:
            return []
        count = audit * samples
        return [f"stability: {count:,} = {audit:,} x {samples} further samples of the source"]

    def _count_further_samples(self, recipe: api.Recipe) -> int:
        settings: StabilitySettings = self.settings(recipe)
        return settings.count_further_samples(recipe.search.k)

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> StabilityRead:
        """Read the verdicts of the trained models and of the further samples."""
        settings = self.settings(run.recipe)
        ids = api.read_columns(run.path / layout.problems_path("audit"), ("problem_id",))[
            "problem_id"
        ]
        samples = settings.count_further_samples(run.recipe.search.k)
        further = np.zeros((len(ids), 0), dtype=np.bool_)
        if samples and arms:
            further = read_samples(run.path / _SAMPLES_FILE, ids, samples)
        decisions = read_decided(run.path, arms, settings.adapters)
        return StabilityRead(settings, decisions, further)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: StabilityRead
    ) -> Iterator[api.Table]:
        """Return the sets' agreement, their states, and every quantity under every set."""
        verdicts = inputs.audit.verdicts
        passed = np.hstack([verdicts.passed, read.further_samples])
        windows = read.settings.list_windows()
        states = np.array(
            [partition(verdicts.deployed, passed[:, w.offset : w.end]) for w in windows]
        )
        settings = {"adapters": read.settings.adapters, "K": read.settings.k}
        agreement = settings | measure_agreement(states)
        yield api.Table(f"{self.name}_agreement", _AGREEMENT_COLUMNS, [agreement], _AGREEMENT_NOTE)
        rows = [
            {"samples": window.range_text, **{s: int((row == s).sum()) for s in "GSU"}}
            for window, row in zip(windows, states, strict=True)
        ]
        columns = [api.Column("samples", "samples"), *(api.Column(s, s, "count") for s in "GSU")]
        yield api.Table(f"{self.name}_sets", columns, rows, _SETS_NOTE)
        columns = [
            api.Column("condition", "condition"),
            api.Column("quantity", "quantity"),
            api.Column("mean", "mean", "share"),
            api.Column("range", "range", "share"),
            api.Column("seed_range", "range of one seed", "share"),
            *(api.Column(f"set_{i}", f"set {i}", "share") for i in range(1, len(windows) + 1)),
        ]
        rows = [
            {"condition": name, **row}
            for name in inputs.conditions
            for row in _describe_quantities(states, stacked(read.decisions, name))
        ]
        yield api.Table(self.name, columns, rows, _QUANTITIES_NOTE)


@dataclass(frozen=True, slots=True)
class StabilityRead:
    """The settings, and the verdicts of the trained models and of further samples of the source.

    Attributes:
        settings: the settings.
        decisions: by arm, shape (P,), whether its response to each audit problem passed.
        further_samples: shape (P, samples), whether each further sample passed; no columns if the
            search drew enough.
    """

    settings: StabilitySettings
    decisions: Mapping[api.Arm, NDArray[np.bool_]]
    further_samples: NDArray[np.bool_]


def _describe_quantities(
    states: NDArray[np.str_], decisions: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each quantity of a condition.

    Args:
        states: shape (W, P), the source states by set.
        decisions: shape (S, P), V of each seed's decode.
    """
    seeds = [compute_quantities(states, passed) for passed in decisions]
    for quantity, values in compute_quantities(states, decisions).items():
        mean, value_range = summarize(values)
        seed_ranges = [summarize(seed[quantity])[1] for seed in seeds]
        yield {
            "quantity": quantity,
            "mean": mean,
            "range": value_range,
            "seed_range": max((r for r in seed_ranges if r is not None), default=None),
            **{f"set_{i}": value for i, value in enumerate(values, 1)},
        }


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("stability", StabilityExperiment)
