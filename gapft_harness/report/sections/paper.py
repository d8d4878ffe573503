"""Comparison with the paper: the figures that a paper prints, as given in the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from gapft_harness.core.records import SOURCE
from gapft_harness.recipe.recipe import MINUS
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.published import BUDGET, PublishedValue, list_published
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import condition_name, format_signed_count, points
from gapft_harness.report.sections.comparison import split_by_state

TITLE = "Comparison with the paper"


def collect_figures(inputs: ReportInputs, findings: Findings) -> list[PublishedValue]:
    """Collect all printed figures with this run's values: the search's, then the conditions'."""
    return [
        *inputs.paper,
        *(
            replace(figure, measured=_measure_condition(findings, figure))
            for figure in list_published(inputs.recipe)
            if figure.conditions and {*figure.conditions} <= {SOURCE, *findings.conditions}
        ),
    ]


def _measure_condition(findings: Findings, figure: PublishedValue) -> float | None:
    if figure.is_difference:
        contrast = findings.find_contrast(*figure.conditions)
        part = (
            contrast.delta
            if figure.quantity == "delta"
            else split_by_state(contrast.terms)[figure.quantity]
        )
        return 100 * float(part)
    condition = findings.conditions[figure.subject]
    if figure.quantity in BUDGET:
        return fmean(getattr(budget, figure.quantity) for budget in condition.budgets)
    rate = getattr(condition.mean, figure.quantity.lower())
    return None if rate is None else 100 * float(rate)


def list_printed(inputs: ReportInputs, names: Mapping[str, str]) -> dict[str, str]:
    """List the printed figures by row; empty where the recipe has none of these.

    Args:
        inputs: the inputs of the report.
        names: by row, the name of the quantity, such as ``audit.greedy``.
    """
    figures_by_name = {
        f"{figure.subject}.{figure.quantity}": figure for figure in list_published(inputs.recipe)
    }
    figures_by_row = {
        row: figures_by_name[name] for row, name in names.items() if name in figures_by_name
    }
    return {row: figure.format_value(figure.printed) for row, figure in figures_by_row.items()}


def build_blocks(values: list[PublishedValue]) -> list[Block]:
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
        *([Text(warning, "warning")] if any(value.is_far for value in values) else []),
        Frame(FIGURES, values).table(note, words=2),
    ]


def _format_difference(figure: PublishedValue) -> str:
    if figure.measured is None:
        return "–"
    if figure.is_count:
        return format_signed_count(round(figure.measured - figure.printed))
    return points((figure.measured - figure.printed) / 100, figure.digits)


def build_content(values: list[PublishedValue]) -> list[dict[str, Any]]:
    """Build the entries for results.json."""
    return Frame(FIGURES, values).entries()


def _format_label(figure: PublishedValue) -> str:
    subject = MINUS.join(map(condition_name, figure.conditions)) or figure.subject
    return f"{subject}: {figure.label.partition(': ')[2]}"


def _format_measured(figure: PublishedValue) -> str:
    return "–" if figure.measured is None else figure.format_value(figure.measured)


_PRINTED = "the printed quantity, and the paper's table"
_FIGURES = "the printed figure, this run's figure, and this run's minus the printed"

FIGURES: tuple[Column[PublishedValue], ...] = (
    Column("of", "", lambda figure: figure.subject),
    Column("figure", "", lambda figure: figure.quantity),
    Column("", _PRINTED, _format_label, "figure"),
    Column("source", _PRINTED, lambda figure: figure.table, "source"),
    Column("paper", "", lambda figure: figure.printed),
    Column("here", "", lambda figure: figure.measured),
    Column("", _FIGURES, lambda figure: figure.format_value(figure.printed), "paper"),
    Column("", _FIGURES, _format_measured, "this run"),
    Column("", _FIGURES, _format_difference, "difference"),
    Column(
        "standard_errors",
        "the difference in standard errors of a share",
        lambda figure: figure.standard_errors,
        "off",
        "{:.1f}".format,
    ),
)
