"""Stability of the source states as a section of the report, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.partition.stability import QUANTITIES, Agreement
from gapft_harness.experiments.stability.findings import StabilityFindings
from gapft_harness.report.reading.adapters import SCALED
from gapft_harness.report.rendering.blocks import Block, Figure, Table, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    listed,
    percent,
    points,
    span,
    whole,
)
from gapft_harness.stages.search.states import Window

_FLOWS = {
    "S_flow": "S flow",
    "U_flow": "U flow",
    "combined_correction": "combined",
    "G_regression": "G regression",
    "total_gain": "total gain",
}
_RATES = {"kappa_S": "κ_S", "kappa_U": "κ_U"}


def blocks(found: StabilityFindings) -> list[Block]:
    """A sentence, the figure, how far sets agree, the means over sets, and the ranges."""
    agreed = [] if found.agreement is None else [_partition(found, found.agreement)]
    return [Text(_result(found)), _figure(found), *agreed, _means(found), _ranges(found)]


def rows(found: StabilityFindings) -> Iterator[Sequence[object]]:
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
