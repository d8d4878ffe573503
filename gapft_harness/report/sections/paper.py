"""Comparison with the paper: the figures that a paper prints, as given in the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from gapft_harness.core.records import SOURCE
from gapft_harness.recipe.recipe import MINUS
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.paper import BUDGET, Figure, printed
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import condition_name, points, signed_whole
from gapft_harness.report.sections.comparison import by_state

TITLE = "Comparison with the paper"


def figures(inputs: ReportInputs, findings: Findings) -> list[Figure]:
    """Collect all printed figures with this run's values: the search's, then the conditions'."""
    return [
        *inputs.paper,
        *(
            replace(figure, here=_of_condition(findings, figure))
            for figure in printed(inputs.recipe)
            if figure.conditions and {*figure.conditions} <= {SOURCE, *findings.conditions}
        ),
    ]


def _of_condition(findings: Findings, figure: Figure) -> float | None:
    if figure.is_difference:
        contrast = findings.contrast(*figure.conditions)
        part = contrast.delta if figure.what == "delta" else by_state(contrast.terms)[figure.what]
        return 100 * float(part)
    condition = findings.conditions[figure.of]
    if figure.what in BUDGET:
        return fmean(getattr(budget, figure.what) for budget in condition.budgets)
    rate = getattr(condition.mean, figure.what.lower())
    return None if rate is None else 100 * float(rate)


def column(inputs: ReportInputs, names: Mapping[str, str]) -> dict[str, str]:
    """List the printed figures by row; empty where the recipe has none of these.

    Args:
        inputs: the inputs of the report.
        names: by row, the name of the quantity, such as ``audit.greedy``.
    """
    of = {f"{figure.of}.{figure.what}": figure for figure in printed(inputs.recipe)}
    found = {row: of[name] for row, name in names.items() if name in of}
    return {row: figure.shown(figure.printed) for row, figure in found.items()}


def blocks(shown: list[Figure]) -> list[Block]:
    """Build the table, and a warning where the source differs from the paper's."""
    note = (
        "Counts, rates in percent, and differences in percentage points. Off: the difference of a "
        "source figure from the printed one, in standard errors of a share. Searches with the same "
        "prompt on the same problems differ by less."
    )
    warning = (
        "The source differs from the paper's source by more than chance explains, so its prompt, "
        "rule, data or weights are different, and later results are not comparable."
    )
    return [
        *([Text(warning, "warning")] if any(of.is_far for of in shown) else []),
        Frame(FIGURES, shown).table(note, words=2),
    ]


def _difference(figure: Figure) -> str:
    if figure.here is None:
        return "–"
    if figure.is_count:
        return signed_whole(round(figure.here - figure.printed))
    return points((figure.here - figure.printed) / 100, figure.digits)


def content(shown: list[Figure]) -> list[dict[str, Any]]:
    """Build the entries for results.json."""
    return Frame(FIGURES, shown).entries()


def _label(figure: Figure) -> str:
    of = MINUS.join(map(condition_name, figure.conditions)) or figure.of
    return f"{of}: {figure.label.partition(': ')[2]}"


def _here(figure: Figure) -> str:
    return "–" if figure.here is None else figure.shown(figure.here)


_PRINTED = "the printed quantity, and the paper's table"
_FIGURES = "the printed figure, this run's figure, and this run's minus the printed"

FIGURES: tuple[Column[Figure], ...] = (
    Column("of", "", lambda figure: figure.of),
    Column("figure", "", lambda figure: figure.what),
    Column("", _PRINTED, _label, "figure"),
    Column("source", _PRINTED, lambda figure: figure.where, "source"),
    Column("paper", "", lambda figure: figure.printed),
    Column("here", "", lambda figure: figure.here),
    Column("", _FIGURES, lambda figure: figure.shown(figure.printed), "paper"),
    Column("", _FIGURES, _here, "this run"),
    Column("", _FIGURES, _difference, "difference"),
    Column(
        "standard_errors",
        "the difference in standard errors of a share",
        lambda figure: figure.apart,
        "off",
        "{:.1f}".format,
    ),
)
