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
from gapft_harness.analysis.decomposition import STABLE_ITEMS, partition, unstable_states
from gapft_harness.analysis.stability import (
    QUANTITIES,
    Agreement,
    Spread,
    agreement,
    flows,
    spreads,
)
from gapft_harness.api import condition_name, layout, listed, percent, points, style, wording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: The model before training, as the arm under which its further samples are stored.
_UNTRAINED = api.Arm(api.SOURCE, 0)
#: The table of these samples, relative to the run directory.
_FILE = layout.decisions(_UNTRAINED, "stability")


class StabilitySettings(api.OfAdapters):
    """The settings ``experiments.stability``; the defaults are those of the paper."""

    sets: int = Field(4, ge=2, description="independent sample sets")
    k: int = Field(
        8,
        ge=1,
        description="K, the samples of a set; the samples of the search come first, and the audit "
        "draws the others",
    )

    def windows(self) -> list[api.Window]:
        """List the windows of the sets; they are adjacent and share no sample."""
        return [api.Window(self.k * number, self.k) for number in range(self.sets)]

    def further(self, drawn: int) -> int:
        """Count the samples of each audit problem that are needed beyond those of the search.

        Args:
            n_drawn: how many samples of each problem the search drew.
        """
        return max(0, self.sets * self.k - drawn)


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
        found: StabilitySettings | None = super().settings(recipe, options)
        if found is not None:
            found.require_scales(recipe, self.name)
        return found

    def faults(self, view: api.View) -> Iterator[str]:
        """Report a backend that cannot draw further samples."""
        if self._further(view.recipe):
            yield from api.find_no_backend(view, self.name)

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Draw the further samples of the source."""
        if view.arms() and (samples := self._further(view.recipe)):
            yield {_FILE: view.decode(_UNTRAINED, samples=samples, verb="sample")}

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Count the further samples of the audit."""
        samples, audit = self._further(recipe), counts["audit"]
        if not samples:
            return api.Cost()
        count = audit * samples
        line = f"stability: {count:,} = {audit:,} x {samples} further samples of the source"
        return api.Cost(decodes=[line], responses=count)

    def _further(self, recipe: api.Recipe) -> int:
        settings: StabilitySettings = self.settings(recipe)
        return settings.further(recipe.search.k)


def _settings(recipe: Mapping[str, Any]) -> StabilitySettings:
    return StabilitySettings.model_validate(recipe["experiments"]["stability"] or {})


@dataclass(frozen=True, slots=True)
class StabilityRead:
    """Verdicts of the trained models, and of further samples of the source.

    Attributes:
        decisions: by arm, shape (P,), whether its response to each audit problem passed.
        further_samples: shape (P, samples), whether each further sample passed; no columns if the
            search drew enough.
    """

    decided: Mapping[api.Arm, NDArray[np.bool_]]
    further: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Moved:
    """How far the quantities of a condition vary over sample sets.

    Attributes:
        spreads: by quantity, the spread of its mean over seeds.
        largest_seed_range: the largest range of the S flow of any single seed.
    """

    spreads: Mapping[str, Spread]
    one_seed: Fraction


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
    agreement: Agreement | None
    conditions: Mapping[str, Moved]
    adapters: str

    @property
    def smallest(self) -> int:
        """The number of problems in the smallest S or U of any set."""
        return min(size for _, s, u in self.sizes for size in (s, u))

    @property
    def unstable(self) -> bool:
        """Whether S or U of some set is too small for a stable rate."""
        return any({"S", "U"} & {*unstable_states(*sizes)} for sizes in self.sizes)


#: A condition's name, and its spreads.
Row = tuple[str, Moved]


def _points(value: Fraction | None) -> str:
    return "–" if value is None else points(value, 2).lstrip("+")


def _flow(quantity: str, title: str, meaning: str) -> tuple[api.Column[Row], api.Column[Row]]:
    """Build two columns of a quantity: its mean over sample sets, and its range."""
    return (
        api.Column("", meaning, lambda row: row[1].spreads[quantity].mean, title, _points),
        api.Column("", meaning, lambda row: row[1].spreads[quantity].range, title, _points),
    )


_COMBINED = _flow("combined_correction", "combined", "S flow plus U flow")
_REGRESSION = _flow("G_regression", "G regression", "p_G ρ_G (Equation 9)")
_GAIN = _flow("total_gain", "total gain", "combined minus G regression (Equation 9)")
MEANS: tuple[api.Column[Row], ...] = (
    api.Column("", "", lambda row: row[0], "condition", condition_name),
    _flow("S_flow", "S flow", "p_S κ_S (Equation 9)")[0],
    _flow("U_flow", "U flow", "p_U κ_U (Equation 9)")[0],
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
    _flow(
        "S_flow",
        "S / U flow",
        "of either flow; both have the same range, because their sum is fixed",
    )[1],
    api.Column(
        "",
        "the same for the seed with the largest range",
        lambda row: row[1].one_seed,
        "of one seed",
        _points,
    ),
    *(_flow("kappa_S", "κ_S", "")[1], _flow("kappa_U", "κ_U", "")[1]),
    *(_COMBINED[1], _REGRESSION[1], _GAIN[1]),
)


def _agreed(
    key: str, title: str, meaning: str, value: Callable[[Agreement], Fraction]
) -> api.Column[StabilityFindings]:
    return api.Column(
        key,
        meaning,
        lambda findings: findings.agreement and value(findings.agreement),
        title,
        lambda rate: percent(rate, 2),
    )


def _sizes(state: int) -> api.Column[StabilityFindings]:
    return api.Column(
        "",
        "problems in this state, fewest to most over sets",
        lambda found: [sizes[state] for sizes in found.sizes],
        "GSU"[state],
        wording.span,
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
        wording.whole,
    ),
    *(_sizes(1), _sizes(2)),
    _agreed(
        "unstable_share",
        "unstable S/U",
        "share of failures that are in S by one set and in U by another",
        lambda agreement: agreement.unstable,
    ),
    _agreed(
        "agreement",
        "agreement",
        "share of failures that two sets assign to the same state, mean over pairs",
        lambda agreement: agreement.same,
    ),
    _agreed(
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
        settings = _settings(recipe)
        ids = api.read_columns(run_path / layout.problems("audit"), ("problem_id",))["problem_id"]
        samples = settings.further(recipe["search"]["k"])
        further = np.zeros((len(ids), 0), dtype=np.bool_)
        if samples and arms:
            further = api.read_samples(run_path / _FILE, ids, samples)
        return StabilityRead(api.read_decided(run_path, arms, settings.adapters), further)

    def compute(self, inputs: api.ReportInputs, read: StabilityRead) -> StabilityFindings:
        """Compute the agreement of the sets, and the spreads of each condition."""
        settings = _settings(inputs.recipe)
        searched = inputs.audit.verdicts
        passed = np.hstack([searched.passed, read.further])
        windows = settings.windows()
        states = np.array(
            [partition(searched.greedy, passed[:, of.offset : of.end]) for of in windows]
        )
        conditions = {}
        for name in inputs.conditions:
            by_set = flows(states, api.stacked(read.decided, name))
            ranges = [
                spreads([[of] for of in seed])["S_flow"].range for seed in zip(*by_set, strict=True)
            ]
            conditions[name] = Moved(spreads(by_set), max(of for of in ranges if of is not None))
        return StabilityFindings(
            k=settings.k,
            sizes=tuple(_sizes_of(by_set) for by_set in states),
            agreement=agreement(states),
            conditions=conditions,
            adapters=settings.adapters,
        )

    def sections(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: StabilityFindings
    ) -> Iterator[api.Section]:
        """Return the section: result, figure, agreement of sets, means and ranges."""
        rows = [*found.conditions.items()]
        tables = [
            api.Frame(MEANS, rows).table(
                "Mean over sample sets and seeds, in percentage points of the audit. S and U flow: "
                "p_S κ_S and p_U κ_U. Combined: their sum. Total gain: combined minus G regression."
            ),
            api.Frame(RANGES, rows).table(_of_ranges(found)),
        ]
        if found.agreement is not None:
            tables.insert(0, api.Frame(SETS, [found]).table(_of_sets(found)))
        shown: list[api.Block] = [api.Text(_result(found)), _figure(found), *tables]
        yield api.Section("Stability of the source states", shown)

    def figures(self, findings: api.ReportFindings, found: StabilityFindings) -> api.Figures:
        """Return the figure of every quantity under every set."""
        yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, found: StabilityFindings
    ) -> Iterator[tuple[str, api.Rows]]:
        """Return the CSV table of every quantity under every set."""
        yield "stability.csv", _rows(found)

    def results(self, found: StabilityFindings) -> dict[str, Any]:
        """Return the entry of results.json."""
        (content,) = api.Frame(SETS, [found]).entries()
        return content | {
            "conditions": {
                name: {
                    **{
                        quantity: {
                            "sets": [_float(value) for value in of.spreads[quantity].values],
                            "mean": _float(of.spreads[quantity].mean),
                            "range": _float(of.spreads[quantity].range),
                        }
                        for quantity in QUANTITIES
                    },
                    "largest_flow_range_of_a_seed": float(of.one_seed),
                }
                for name, of in found.conditions.items()
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


def _sizes_of(states: NDArray[np.str_]) -> tuple[int, int, int]:
    """Count the problems in G, S and U."""
    solved, recovered, missed = (int((states == state).sum()) for state in "GSU")
    return solved, recovered, missed


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _rows(found: StabilityFindings) -> api.Rows:
    """Build CSV rows, one for each condition and quantity, after the header."""
    sets = (f"set_{i + 1}" for i in range(len(found.sizes)))
    yield "condition", "quantity", "mean", "range", *sets
    for name, of in found.conditions.items():
        for quantity, spread in ((quantity, of.spreads[quantity]) for quantity in QUANTITIES):
            yield name, quantity, *map(_float, (spread.mean, spread.range, *spread.values))


def _result(found: StabilityFindings) -> str:
    sets = f"{len(found.sizes)} independent sets of {found.k} samples"
    agreed = found.agreement
    if agreed is None:
        return f"The source solves every audit problem in one decode, so {sets} cannot differ."
    return (
        f"Under {sets}, {percent(agreed.unstable)} of the {wording.whole(agreed.failures)} audit "
        "problems that the source gets wrong are in S by one set and in U by another. Two sets "
        f"agree on {percent(agreed.same)} of them, and their S have a Jaccard index of "
        f"{percent(agreed.jaccard)} (both: mean over pairs of sets). These changes only shift "
        "correction between S and U: total gain, G regression and combined correction do not "
        "depend on the samples."
        f"{f' {api.SCALED}' if found.adapters == 'scaled' else ''}"
    )


def _figure(found: StabilityFindings) -> api.Figure:
    shown = (
        f"{condition_name(name)} S flow {_points(of.spreads['S_flow'].range)}, κ_S "
        f"{_points(of.spreads['kappa_S'].range)}, κ_U {_points(of.spreads['kappa_U'].range)}"
        for name, of in found.conditions.items()
    )
    return api.Figure(
        "stability",
        f"Ranges over the {len(found.sizes)} sample sets, in points: {'; '.join(shown)}.",
        f"A marker for each of the {len(found.sizes)} sample sets, mean over seeds. S and U flow "
        "change in opposite directions; their sum, the regression and the total gain are constant.",
    )


def _of_sets(found: StabilityFindings) -> str:
    shown = listed([api.Window(found.k * i, found.k).shown for i in range(len(found.sizes))])
    return (
        f"Sets: samples {shown} of the source, those of the search first. S and U: audit problems, "
        "from the smallest to the largest number of any set. Unstable: the share of the source's "
        "failures that are in S by one set and in U by another. Agreement, and the Jaccard index "
        "of S: means over pairs of sets."
    )


def _of_ranges(found: StabilityFindings) -> str:
    note = (
        "The largest value under any sample set minus the smallest, of means over seeds, in "
        "percentage points. S and U flow have the same range, because their sum is fixed. Of one "
        "seed: the largest range of the flows of any single training seed."
    )
    rates = [
        of.spreads[rate] for of in found.conditions.values() for rate in ("kappa_S", "kappa_U")
    ]
    if any(of.range is None for of in rates):
        note += " A dash: by some set the state is empty, so its rate is undefined."
    if found.unstable:
        note += (
            f" Unstable: by some set S or U has {found.smallest} problems, fewer than "
            f"{STABLE_ITEMS}, so κ depends on single problems."
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


def _draw(findings: api.ReportFindings, found: StabilityFindings) -> Figure:
    """Draw a marker for each quantity and sample set.

    The markers of quantities that do not depend on the samples coincide.
    """
    names = list(findings.distinct)
    heights = [(0.3 + 0.12 * len(names)) * len(of) + 0.9 for of, _ in _PANELS.values()]
    figure, panels = style.panels(sum(heights), height_ratios=heights)
    for axes, (title, (quantities, label)) in zip(panels, _PANELS.items(), strict=True):
        rows = {
            shown: {name: found.conditions[name].spreads[quantity].values for name in names}
            for quantity, shown in quantities.items()
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
