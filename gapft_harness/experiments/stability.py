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

from gapft_harness.analysis.decomposition import STABLE_ITEMS, unstable_states
from gapft_harness.analysis.stability import (
    QUANTITIES,
    Agreement,
    Spread,
    agreement,
    flows,
    spreads,
)
from gapft_harness.core.records import Arm
from gapft_harness.hooks.specs import hookimpl
from gapft_harness.report.figures.style import WIDTH, condition_rows, legend_below, spread
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows, Summary
from gapft_harness.report.reading.adapters import SCALED, read_decided, stacked
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Figure, Section, Table, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    listed,
    percent,
    points,
    span,
    whole,
)
from gapft_harness.report.results import number
from gapft_harness.stages.experiment.adapters import OfAdapters
from gapft_harness.stages.search.states import Window
from gapft_harness.stages.search.windows import OnWindows

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


class StabilitySettings(OfAdapters):
    """What a recipe says under ``experiments.stability``; the defaults are the paper's."""

    sets: int = Field(4, ge=2, description="independent sample sets")
    k: int = Field(8, ge=1, description="K, samples of a set")

    def windows(self) -> list[Window]:
        """Adjacent windows, which share no sample."""
        return [Window(self.k * number, self.k) for number in range(self.sets)]


class StabilityExperiment(OnWindows):
    """Whether the S/U split holds under other samples of the source, and what it moves."""

    name = stage = "stability"
    section = StabilitySettings

    def part(self) -> StabilityPart:
        """Its section and table."""
        return StabilityPart()


def _settings(recipe: Mapping[str, Any]) -> StabilitySettings:
    return StabilitySettings.model_validate(recipe["experiments"]["stability"] or {})


@dataclass(frozen=True, slots=True)
class Moved:
    """What the sample set moves in one condition.

    Attributes:
        spreads: by quantity, of the mean over seeds.
        one_seed: the largest range of the S flow under any one seed.
    """

    spreads: Mapping[str, Spread]
    one_seed: Fraction


@dataclass(frozen=True, slots=True)
class StabilityFindings:
    """Stability over sample sets.

    Attributes:
        k: K, samples of a set.
        sizes: audit problems in G, S and U under each set.
        agreement: of the sets on source failures; None where there are none.
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
        """Problems of the smallest S or U under any set, on which a rate rests."""
        return min(size for _, s, u in self.sizes for size in (s, u))

    @property
    def unstable(self) -> bool:
        """Whether some S or U is too small for a stable rate."""
        return any({"S", "U"} & {*unstable_states(*sizes)} for sizes in self.sizes)


class StabilityPart(Part):
    """Stability of the source states."""

    name = "stability"
    after = "Where the change comes from"

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]
    ) -> Mapping[Arm, NDArray[np.bool_]]:
        """What the trained models decided."""
        return read_decided(run_path, arms, _settings(manifest["recipe"]).adapters)

    def compute(
        self, inputs: ReportInputs, read: Mapping[Arm, NDArray[np.bool_]]
    ) -> StabilityFindings:
        """Agreement of the sets, and what they move in each condition."""
        settings = _settings(inputs.recipe)
        sets = [inputs.audit.verdicts.window(of.offset, of.k) for of in settings.windows()]
        states = np.array([verdicts.states for verdicts in sets])
        conditions = {}
        for name in inputs.conditions:
            by_set = flows(states, stacked(read, name))
            ranges = [
                spreads([[of] for of in seed])["S_flow"].range for seed in zip(*by_set, strict=True)
            ]
            conditions[name] = Moved(spreads(by_set), max(of for of in ranges if of is not None))
        return StabilityFindings(
            k=settings.k,
            sizes=tuple((of["G"], of["S"], of["U"]) for of in (each.sizes for each in sets)),
            agreement=agreement(states),
            conditions=conditions,
            adapters=settings.adapters,
        )

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: StabilityFindings
    ) -> Iterator[Section]:
        """A sentence, the figure, how far sets agree, the means over sets, and the ranges."""
        agreed = [] if found.agreement is None else [_partition(found, found.agreement)]
        shown: list[Block] = [
            Text(_result(found)),
            _figure(found),
            *agreed,
            _means(found),
            _ranges(found),
        ]
        yield Section("Stability of the source states", shown)

    def figures(
        self, findings: Findings, found: StabilityFindings
    ) -> Iterator[tuple[str, Callable[[Findings], Drawn]]]:
        """Every quantity under every set."""
        yield self.name, partial(_draw, found=found)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: StabilityFindings
    ) -> Iterator[tuple[str, Rows]]:
        """Every quantity under every set."""
        yield "stability.csv", _rows(found)

    def results(self, found: StabilityFindings) -> dict[str, Any]:
        """For results.json."""
        agreed = found.agreement
        return {
            "adapters": found.adapters,
            "K": found.k,
            "sets": [dict(zip("GSU", sizes, strict=True)) for sizes in found.sizes],
            "source_failures": agreed and agreed.failures,
            "unstable_share": agreed and float(agreed.unstable),
            "agreement": agreed and float(agreed.same),
            "S_jaccard": agreed and float(agreed.jaccard),
            "conditions": {
                name: {
                    **{
                        quantity: {
                            "sets": [number(value) for value in of.spreads[quantity].values],
                            "mean": number(of.spreads[quantity].mean),
                            "range": number(of.spreads[quantity].range),
                        }
                        for quantity in QUANTITIES
                    },
                    "largest_flow_range_of_a_seed": float(of.one_seed),
                }
                for name, of in found.conditions.items()
            },
        }

    def summary(self, content: Mapping[str, Any]) -> Summary | None:
        """How many failures change their state."""
        if content["unstable_share"] is None:
            return None
        return Summary(
            f"S/U under {len(content['sets'])} sets of {content['K']} samples: "
            f"{100 * content['unstable_share']:.1f}% of the source's failures change",
            content["source_failures"],
        )


_FLOWS = {
    "S_flow": "S flow",
    "U_flow": "U flow",
    "combined_correction": "combined",
    "G_regression": "G regression",
    "total_gain": "total gain",
}
_RATES = {"kappa_S": "κ_S", "kappa_U": "κ_U"}


def _rows(found: StabilityFindings) -> Iterator[Sequence[object]]:
    """A line a condition and quantity; the first names the columns."""
    yield (
        "condition",
        "quantity",
        "mean",
        "range",
        *(f"set_{i + 1}" for i in range(len(found.sizes))),
    )
    for name, of in found.conditions.items():
        for quantity in QUANTITIES:
            spread = of.spreads[quantity]
            cells = (spread.mean, spread.range, *spread.values)
            yield name, quantity, *("" if cell is None else float(cell) for cell in cells)


def _result(found: StabilityFindings) -> str:
    sets = f"{len(found.sizes)} independent sets of {found.k} samples"
    agreed = found.agreement
    if agreed is None:
        return f"The source solves every audit problem in one decode, so {sets} split nothing."
    return (
        f"Under {sets}, {percent(agreed.unstable)} of the {whole(agreed.failures)} audit problems "
        "that the source gets wrong are in S by one set and in U by another. Two sets agree on "
        f"{percent(agreed.same)} of them, and their S have a Jaccard index of "
        f"{percent(agreed.jaccard)} (both: mean over pairs of sets). What this moves goes from one "
        "term to the other: total gain, G regression and the combined correction rest on no sample."
        f"{f' {SCALED}' if found.adapters == 'scaled' else ''}"
    )


def _figure(found: StabilityFindings) -> Figure:
    shown = (
        f"{condition_name(name)} S flow {_points(of.spreads['S_flow'].range)}, κ_S "
        f"{_points(of.spreads['kappa_S'].range)}, κ_U {_points(of.spreads['kappa_U'].range)}"
        for name, of in found.conditions.items()
    )
    return Figure(
        "stability",
        f"Ranges over the {len(found.sizes)} sample sets, in points: {'; '.join(shown)}.",
        f"A marker for each of the {len(found.sizes)} sample sets, mean over seeds. S and U flow "
        "move against each other; their sum, the regression and the total gain do not move.",
    )


def _partition(found: StabilityFindings, agreed: Agreement) -> Table:
    sets = f"{len(found.sizes)} of K = {found.k}"
    recovered, missed = ([sizes[state] for sizes in found.sizes] for state in (1, 2))
    rates = (percent(rate, 2) for rate in (agreed.unstable, agreed.same, agreed.jaccard))
    counts = [whole(agreed.failures), span(recovered), span(missed)]
    shown = listed([Window(found.k * i, found.k).shown for i in range(len(found.sizes))])
    return Table(
        ["sample sets", "source failures", "S", "U", "unstable S/U", "agreement", "S Jaccard"],
        [[sets, *counts, *rates]],
        note=f"Sets: samples {shown} of the search. Audit problems. S and U: from the smallest to "
        "the largest under any set. Unstable: the share of the source's failures that are in S "
        "under one set and in U under another. Agreement, and the Jaccard index of S: means over "
        "pairs of sets.",
    )


def _means(found: StabilityFindings) -> Table:
    return Table(
        ["condition", *_FLOWS.values()],
        [
            [
                condition_name(name),
                *(_points(of.spreads[quantity].mean) for quantity in _FLOWS),
            ]
            for name, of in found.conditions.items()
        ],
        note="Mean over sample sets and seeds, in percentage points of the audit. S and U flow: "
        "p_S κ_S and p_U κ_U; combined: their sum, minus G regression the total gain.",
    )


def _ranges(found: StabilityFindings) -> Table:
    note = (
        "The largest value under any sample set minus the smallest, of means over seeds, in "
        "percentage points. S and U flow have one range, as their sum is fixed; of one seed: the "
        "largest range of the flows under any one training seed."
    )
    if any(of.spreads[rate].range is None for of in found.conditions.values() for rate in _RATES):
        note += " A dash: under some set the state is empty and its rate undefined."
    if found.unstable:
        note += (
            f" Unstable: under some set S or U has {found.smallest} problems, fewer than "
            f"{STABLE_ITEMS}, so κ moves with single problems."
        )
    return Table(
        [
            "range over sets",
            "S / U flow",
            "of one seed",
            *_RATES.values(),
            "combined",
            "G regression",
            "total gain",
        ],
        [
            [
                condition_name(name),
                _points(of.spreads["S_flow"].range),
                _points(of.one_seed),
                *(
                    _points(of.spreads[quantity].range)
                    for quantity in (*_RATES, "combined_correction", "G_regression", "total_gain")
                ),
            ]
            for name, of in found.conditions.items()
        ],
        note=note,
    )


def _points(value: object) -> str:
    return "–" if value is None else points(value, 2).lstrip("+")  # type: ignore[arg-type]


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


def _draw(findings: Findings, found: StabilityFindings) -> Drawn:
    """Each quantity under every sample set, a marker a set; what rests on no sample is one."""
    from matplotlib.figure import Figure as Drawn

    names = list(findings.distinct)
    heights = [(0.3 + 0.12 * len(names)) * len(of) + 0.9 for of, _ in _PANELS.values()]
    figure = Drawn(figsize=(WIDTH, sum(heights)), layout="constrained")
    spread(figure)
    panels = figure.subplots(2, 1, height_ratios=heights)
    for axes, (title, (quantities, label)) in zip(panels, _PANELS.items(), strict=True):
        rows = {
            shown: {name: found.conditions[name].spreads[quantity].values for name in names}
            for quantity, shown in quantities.items()
        }
        condition_rows(axes, list(findings.conditions), rows)
        axes.set_xlabel(label)
        axes.set_title(title, x=0)
    legend_below(panels[-1], panels[-1].get_legend_handles_labels()[0])
    return figure


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the check."""
    register("stability", StabilityExperiment)
