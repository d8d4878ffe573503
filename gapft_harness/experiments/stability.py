"""Stability of the source states over independent sample sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.decomposition import STABLE_ITEMS, find_unstable_states, partition
from gapft_harness.analysis.stability import (
    QUANTITIES,
    PartitionAgreement,
    Spread,
    compute_spreads,
    measure_agreement,
)
from gapft_harness.api import condition_name, layout, listed, percent, points, style, wording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: The model before training, as the arm under which its further samples are stored.
_SOURCE_ARM = api.Arm(api.SOURCE, 0)
#: The table of these samples, relative to the run directory.
_SAMPLES_FILE = layout.decisions_path(_SOURCE_ARM, "stability")


class StabilitySettings(api.OfAdapters):
    """The settings ``experiments.stability``; the defaults are those of the paper."""

    sets: int = Field(4, ge=2, description="independent sample sets")
    k: int = Field(
        8,
        ge=1,
        description="K, the samples of a set; the samples of the search come first, and the audit "
        "draws the others",
    )

    def list_windows(self) -> list[api.Window]:
        """List the windows of the sets; they are adjacent and share no sample."""
        return [api.Window(self.k * number, self.k) for number in range(self.sets)]

    def count_further_samples(self, n_drawn: int) -> int:
        """Count the samples of each audit problem that are needed beyond those of the search.

        Args:
            n_drawn: how many samples of each problem the search drew.
        """
        return max(0, self.sets * self.k - n_drawn)


class StabilityExperiment(api.Experiment):
    """Measures whether the S/U split is stable under other samples of the source."""

    name = "stability"
    section = StabilitySettings

    def part(self) -> StabilityPart:
        """Return the part of the report."""
        return StabilityPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the settings ask for scaled adapters, and the run has none.
        """
        settings: StabilitySettings | None = super().settings(recipe, options)
        if settings is not None:
            settings.require_scales(recipe, self.name)
        return settings

    def faults(self, view: api.View) -> Iterator[str]:
        """Report a backend that cannot draw further samples."""
        if self._count_further_samples(view.recipe):
            yield from api.find_no_backend(view, self.name)

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Draw the further samples of the source."""
        if view.arms() and (samples := self._count_further_samples(view.recipe)):
            yield {_SAMPLES_FILE: view.decode(_SOURCE_ARM, samples=samples, verb="sample")}

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Count the further samples of the audit."""
        samples, audit = self._count_further_samples(recipe), counts["audit"]
        if not samples:
            return api.Cost()
        count = audit * samples
        line = f"stability: {count:,} = {audit:,} x {samples} further samples of the source"
        return api.Cost(decodes=[line], responses=count)

    def _count_further_samples(self, recipe: api.Recipe) -> int:
        settings: StabilitySettings = self.settings(recipe)
        return settings.count_further_samples(recipe.search.k)


def _read_settings(recipe: Mapping[str, Any]) -> StabilitySettings:
    return StabilitySettings.model_validate(recipe["experiments"]["stability"] or {})


@dataclass(frozen=True, slots=True)
class StabilityRead:
    """Verdicts of the trained models, and of further samples of the source.

    Attributes:
        decisions: by arm, shape (P,), whether its response to each audit problem passed.
        further_samples: shape (P, samples), whether each further sample passed; no columns if the
            search drew enough.
    """

    decisions: Mapping[api.Arm, NDArray[np.bool_]]
    further_samples: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ConditionSpreads:
    """How far the quantities of a condition vary over sample sets.

    Attributes:
        spreads: by quantity, the spread of its mean over seeds.
        largest_seed_range: the largest range of the S flow of any single seed.
    """

    spreads: Mapping[str, Spread]
    largest_seed_range: Fraction


@dataclass(frozen=True, slots=True)
class StabilityFindings:
    """Stability over sample sets.

    Attributes:
        k: K, the samples of a set.
        sizes: for each set, the number of audit problems in G, S and U.
        agreement: agreement of the sets on source failures; None: there are no failures.
        conditions: by name, in the recipe's order.
        adapters: ``trained`` or ``scaled``.
    """

    k: int
    sizes: tuple[tuple[int, int, int], ...]
    agreement: PartitionAgreement | None
    conditions: Mapping[str, ConditionSpreads]
    adapters: str

    @property
    def smallest_state(self) -> int:
        """The number of problems in the smallest S or U of any set."""
        return min(size for _, s, u in self.sizes for size in (s, u))

    @property
    def is_unstable(self) -> bool:
        """Whether S or U of some set is too small for a stable rate."""
        return any({"S", "U"} & {*find_unstable_states(*sizes)} for sizes in self.sizes)


#: A condition's name, and its spreads.
Row = tuple[str, ConditionSpreads]


def _format_range(value: Fraction | None) -> str:
    return "–" if value is None else points(value, 2).lstrip("+")


def _build_flow_columns(
    quantity: str, title: str, meaning: str
) -> tuple[api.Column[Row], api.Column[Row]]:
    """Build two columns of a quantity: its mean over sample sets, and its range."""
    return (
        api.Column("", meaning, lambda row: row[1].spreads[quantity].mean, title, _format_range),
        api.Column("", meaning, lambda row: row[1].spreads[quantity].range, title, _format_range),
    )


_COMBINED = _build_flow_columns("combined_correction", "combined", "S flow plus U flow")
_REGRESSION = _build_flow_columns("G_regression", "G regression", "p_G ρ_G (Equation 9)")
_GAIN = _build_flow_columns("total_gain", "total gain", "combined minus G regression (Equation 9)")
MEANS: tuple[api.Column[Row], ...] = (
    api.Column("", "", lambda row: row[0], "condition", condition_name),
    _build_flow_columns("S_flow", "S flow", "p_S κ_S (Equation 9)")[0],
    _build_flow_columns("U_flow", "U flow", "p_U κ_U (Equation 9)")[0],
    *(_COMBINED[0], _REGRESSION[0], _GAIN[0]),
)
RANGES: tuple[api.Column[Row], ...] = (
    api.Column(
        "",
        "the condition; cells: largest minus smallest value",
        lambda row: row[0],
        "range over sets",
        condition_name,
    ),
    _build_flow_columns(
        "S_flow",
        "S / U flow",
        "of either flow; both have the same range, because their sum is fixed",
    )[1],
    api.Column(
        "",
        "the same for the seed with the largest range",
        lambda row: row[1].largest_seed_range,
        "of one seed",
        _format_range,
    ),
    *(_build_flow_columns("kappa_S", "κ_S", "")[1], _build_flow_columns("kappa_U", "κ_U", "")[1]),
    *(_COMBINED[1], _REGRESSION[1], _GAIN[1]),
)


def _build_agreement_column(
    key: str, title: str, meaning: str, value: Callable[[PartitionAgreement], Fraction]
) -> api.Column[StabilityFindings]:
    return api.Column(
        key,
        meaning,
        lambda findings: findings.agreement and value(findings.agreement),
        title,
        lambda rate: percent(rate, 2),
    )


def _build_size_column(state: int) -> api.Column[StabilityFindings]:
    return api.Column(
        "",
        "problems in this state, fewest to most over sets",
        lambda part_findings: [sizes[state] for sizes in part_findings.sizes],
        "GSU"[state],
        wording.format_range,
    )


SETS: tuple[api.Column[StabilityFindings], ...] = (
    api.Column("adapters", "", lambda findings: findings.adapters),
    api.Column("K", "", lambda findings: findings.k),
    api.Column(
        "sets",
        "",
        lambda findings: [dict(zip("GSU", counts, strict=True)) for counts in findings.sizes],
    ),
    api.Column(
        "",
        "number of sets, and K samples of each",
        lambda findings: f"{len(findings.sizes)} of K = {findings.k}",
        "sample sets",
    ),
    api.Column(
        "source_failures",
        "greedy failures of the source",
        lambda findings: findings.agreement and findings.agreement.failures,
        "source failures",
        wording.format_count,
    ),
    *(_build_size_column(1), _build_size_column(2)),
    _build_agreement_column(
        "unstable_share",
        "unstable S/U",
        "share of failures that are in S by one set and in U by another",
        lambda agreement: agreement.unstable,
    ),
    _build_agreement_column(
        "agreement",
        "agreement",
        "share of failures that two sets assign to the same state, mean over pairs",
        lambda agreement: agreement.same,
    ),
    _build_agreement_column(
        "S_jaccard",
        "S Jaccard",
        "overlap of S, mean over pairs",
        lambda agreement: agreement.jaccard,
    ),
)


class StabilityPart(api.Part):
    """Stability of the source states."""

    name = "stability"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> StabilityRead:
        """Read the verdicts of the trained models and of the further samples."""
        recipe = manifest["recipe"]
        settings = _read_settings(recipe)
        ids = api.read_columns(run_path / layout.problems_path("audit"), ("problem_id",))[
            "problem_id"
        ]
        samples = settings.count_further_samples(recipe["search"]["k"])
        further = np.zeros((len(ids), 0), dtype=np.bool_)
        if samples and arms:
            further = api.read_samples(run_path / _SAMPLES_FILE, ids, samples)
        return StabilityRead(api.read_decided(run_path, arms, settings.adapters), further)

    def compute(self, inputs: api.ReportInputs, read: StabilityRead) -> StabilityFindings:
        """Compute the agreement of the sets, and the spreads of each condition."""
        settings = _read_settings(inputs.recipe)
        verdicts = inputs.audit.verdicts
        passed = np.hstack([verdicts.passed, read.further_samples])
        windows = settings.list_windows()
        states = np.array(
            [
                partition(verdicts.deployed, passed[:, window.offset : window.end])
                for window in windows
            ]
        )
        conditions = {}
        for name in inputs.conditions:
            decisions = api.stacked(read.decisions, name)
            ranges = [compute_spreads(states, seed)["S_flow"].range for seed in decisions]
            conditions[name] = ConditionSpreads(
                compute_spreads(states, decisions),
                max(window for window in ranges if window is not None),
            )
        return StabilityFindings(
            k=settings.k,
            sizes=tuple(_count_states(decompositions) for decompositions in states),
            agreement=measure_agreement(states),
            conditions=conditions,
            adapters=settings.adapters,
        )

    def sections(
        self,
        inputs: api.ReportInputs,
        findings: api.ReportFindings,
        part_findings: StabilityFindings,
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, agreement of sets, means and ranges."""
        rows = [*part_findings.conditions.items()]
        tables = [
            api.Frame(MEANS, rows).table(
                "Mean over sample sets and seeds, in percentage points of the audit. S and U flow: "
                "p_S κ_S and p_U κ_U. Combined: their sum. Total gain: combined minus G regression."
            ),
            api.Frame(RANGES, rows).table(_describe_ranges(part_findings)),
        ]
        if part_findings.agreement is not None:
            tables.insert(0, api.Frame(SETS, [part_findings]).table(_describe_sets(part_findings)))
        content_blocks: list[api.Block] = [
            api.Text(_describe_result(part_findings)),
            _build_figure(part_findings),
            *tables,
        ]
        yield api.Section("Stability of the source states", content_blocks)

    def figures(
        self, findings: api.ReportFindings, part_findings: StabilityFindings
    ) -> api.Figures:
        """Return the figure of every quantity under every set."""
        yield self.name, partial(_draw_figure, part_findings=part_findings)

    def tables(
        self,
        inputs: api.ReportInputs,
        findings: api.ReportFindings,
        part_findings: StabilityFindings,
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table of every quantity under every set."""
        yield "stability.csv", _build_csv_rows(part_findings)

    def results(self, part_findings: StabilityFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        (content,) = api.Frame(SETS, [part_findings]).entries()
        return content | {
            "conditions": {
                name: {
                    **{
                        quantity: {
                            "sets": [
                                _to_float(value) for value in condition.spreads[quantity].values
                            ],
                            "mean": _to_float(condition.spreads[quantity].mean),
                            "range": _to_float(condition.spreads[quantity].range),
                        }
                        for quantity in QUANTITIES
                    },
                    "largest_flow_range_of_a_seed": float(condition.largest_seed_range),
                }
                for name, condition in part_findings.conditions.items()
            },
        }

    def summary(self, content: Mapping[str, Any]) -> api.Summary | None:
        """Return a line on the share of failures that change their state."""
        if content["unstable_share"] is None:
            return None
        return api.Summary(
            f"S/U under {len(content['sets'])} sets of {content['K']} samples: "
            f"{100 * content['unstable_share']:.1f}% of the source's failures change state",
            content["source_failures"],
        )


def _count_states(states: NDArray[np.str_]) -> tuple[int, int, int]:
    """Count the problems in G, S and U."""
    solved, recovered, missed = (int((states == state).sum()) for state in "GSU")
    return solved, recovered, missed


def _to_float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _build_csv_rows(part_findings: StabilityFindings) -> api.Rows:
    """Build CSV rows, one for each condition and quantity, after the header."""
    sets = (f"set_{i + 1}" for i in range(len(part_findings.sizes)))
    yield "condition", "quantity", "mean", "range", *sets
    for name, condition in part_findings.conditions.items():
        for quantity, spread in (
            (quantity, condition.spreads[quantity]) for quantity in QUANTITIES
        ):
            yield name, quantity, *map(_to_float, (spread.mean, spread.range, *spread.values))


def _describe_result(part_findings: StabilityFindings) -> str:
    sets = f"{len(part_findings.sizes)} independent sets of {part_findings.k} samples"
    set_agreement = part_findings.agreement
    if set_agreement is None:
        return f"The source solves every audit problem in one decode, so {sets} cannot differ."
    return (
        f"Under {sets}, {percent(set_agreement.unstable)} of the "
        f"{wording.format_count(set_agreement.failures)} audit problems that the source gets wrong "
        f"are in S by one set and in U by another. Two sets agree on {percent(set_agreement.same)} "
        f"of them, and their S have a Jaccard index of {percent(set_agreement.jaccard)} (both: "
        "mean over pairs of sets). These changes only shift correction between S and U: total "
        "gain, G regression and combined correction do not depend on the samples."
        f"{f' {api.SCALED}' if part_findings.adapters == 'scaled' else ''}"
    )


def _build_figure(part_findings: StabilityFindings) -> api.Figure:
    range_texts = (
        f"{condition_name(name)} S flow {_format_range(condition.spreads['S_flow'].range)}, κ_S "
        f"{_format_range(condition.spreads['kappa_S'].range)}, κ_U "
        f"{_format_range(condition.spreads['kappa_U'].range)}"
        for name, condition in part_findings.conditions.items()
    )
    return api.Figure(
        "stability",
        f"Ranges over the {len(part_findings.sizes)} sample sets, in points: "
        f"{'; '.join(range_texts)}.",
        f"A marker for each of the {len(part_findings.sizes)} sample sets, mean over seeds. S and "
        "U flow change in opposite directions; their sum, the regression and the total gain are "
        "constant.",
    )


def _describe_sets(part_findings: StabilityFindings) -> str:
    window_texts = listed(
        [
            api.Window(part_findings.k * i, part_findings.k).range_text
            for i in range(len(part_findings.sizes))
        ]
    )
    return (
        f"Sets: samples {window_texts} of the source, those of the search first. S and U: audit "
        "problems, from the smallest to the largest number of any set. Unstable: the share of the "
        "source's failures that are in S by one set and in U by another. Agreement, and the "
        "Jaccard index of S: means over pairs of sets."
    )


def _describe_ranges(part_findings: StabilityFindings) -> str:
    note = (
        "The largest value under any sample set minus the smallest, of means over seeds, in "
        "percentage points. S and U flow have the same range, because their sum is fixed. Of one "
        "seed: the largest range of the flows of any single training seed."
    )
    rates = [
        entry.spreads[rate]
        for entry in part_findings.conditions.values()
        for rate in ("kappa_S", "kappa_U")
    ]
    if any(entry.range is None for entry in rates):
        note += " A dash: by some set the state is empty, so its rate is undefined."
    if part_findings.is_unstable:
        note += (
            f" Unstable: by some set S or U has {part_findings.smallest_state} problems, fewer "
            f"than {STABLE_ITEMS}, so κ depends on single problems."
        )
    return note


_PANELS = {
    "Parts of the audit's change": (
        {
            "S_flow": "S flow",
            "U_flow": "U flow",
            "combined_correction": "S and U flow",
            "G_regression": "G regression",
            "total_gain": "total gain",
        },
        "percentage points of the audit",
    ),
    "Rates within the states": (
        {"kappa_S": r"$\kappa_S$", "kappa_U": r"$\kappa_U$"},
        "rate within the state, %",
    ),
}


def _draw_figure(findings: api.ReportFindings, part_findings: StabilityFindings) -> Figure:
    """Draw a marker for each quantity and sample set.

    The markers of quantities that do not depend on the samples coincide.
    """
    names = list(findings.distinct)
    heights = [
        (0.3 + 0.12 * len(names)) * len(quantities_by_key) + 0.9
        for quantities_by_key, _ in _PANELS.values()
    ]
    figure, panels = style.panels(sum(heights), height_ratios=heights)
    for axes, (title, (quantities, label)) in zip(panels, _PANELS.items(), strict=True):
        rows = {
            row_label: {
                name: part_findings.conditions[name].spreads[quantity].values for name in names
            }
            for quantity, row_label in quantities.items()
        }
        style.condition_rows(axes, list(findings.conditions), rows)
        axes.set_xlabel(label)
        axes.set_title(title, x=0)
    style.legend_below(panels[-1], panels[-1].get_legend_handles_labels()[0])
    return figure


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("stability", StabilityExperiment)
