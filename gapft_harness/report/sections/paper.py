"""Comparison with the paper: the figures that a paper prints, as given in the recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.core.records import SOURCE
from gapft_harness.presentation.content import Column, Row, Section, Table
from gapft_harness.report.names import condition_name
from gapft_harness.report.reading.published import (
    DIFFERENT_SOURCE,
    PublishedValue,
    list_published,
)

_NOTE = (
    "Counts, rates in percent, and differences in percentage points. Off: the difference of a "
    "source figure from the printed one, in standard errors of a share. Searches with the same "
    "prompt on the same problems differ by less."
)
_COLUMNS = (
    Column("label", "figure"),
    Column("of"),
    Column("figure"),
    Column("source", "source"),
    Column("paper"),
    Column("here"),
    Column("printed", "paper"),
    Column("measured", "this run"),
    Column("difference", "difference"),
    Column("standard_errors"),
    Column("off", "off"),
)


def measure_conditions(
    recipe: Mapping[str, Any], tables: Sequence[Table], conditions: Sequence[str]
) -> list[PublishedValue]:
    """List a recipe's printed figures of conditions, with their values in the report's tables.

    Args:
        recipe: the recipe.
        tables: the tables of all sections.
        conditions: the conditions of the report; figures of other conditions are left out.
    """
    figures = [
        figure
        for figure in list_published(recipe)
        if figure.conditions and {*figure.conditions} <= {SOURCE, *conditions}
    ]
    return [replace(figure, measured=_find_value(figure, tables)) for figure in figures]


def build_paper(figures: Sequence[PublishedValue]) -> Section:
    """Build the section, with a warning where the source differs from the paper's."""
    warnings = [DIFFERENT_SOURCE] if any(figure.is_far for figure in figures) else []
    table = Table("paper", _COLUMNS, list(map(_build_row, figures)), _NOTE)
    return Section("Comparison with the paper", tables=[table], warnings=warnings)


def _build_row(figure: PublishedValue) -> Row:
    subject = " \N{MINUS SIGN} ".join(map(condition_name, figure.conditions)) or figure.subject
    row = {
        "label": f"{subject}: {figure.label.partition(': ')[2]}",
        "of": figure.subject,
        "figure": figure.quantity,
        "source": figure.table,
        "paper": figure.printed,
        "here": figure.measured,
        "printed": figure.format_value(figure.printed),
        "measured": None,
        "difference": None,
        "standard_errors": figure.standard_errors,
        "off": None,
    }
    if figure.measured is not None:
        row["measured"] = figure.format_value(figure.measured)
        row["difference"] = figure.format_difference(figure.measured - figure.printed)
    if figure.standard_errors is not None:
        row["off"] = f"{figure.standard_errors:.1f}"
    return row


def _find_value(figure: PublishedValue, tables: Sequence[Table]) -> float | None:
    """Find a figure's value in tables; of several seeds the mean; None: they do not have it."""
    values = [
        value
        for table in tables
        if table.name == figure.kind.table or table.name.startswith(f"{figure.kind.table}_")
        for row in table.rows
        if (value := _read_value(figure, row)) is not None
    ]
    if not values:
        return None
    return fmean(values) if figure.is_count else 100 * fmean(values)


def _read_value(figure: PublishedValue, row: Row) -> float | None:
    """Read a figure's value in a row; None: the row has a different subject, or no value."""
    names = list(_list_conditions(row))
    if figure.k and str(row.get("K")) != figure.k:
        return None
    if {*names} != {*figure.conditions}:
        return None
    column, _, end = figure.kind.column.rpartition("_")
    if end in ("low", "high"):
        estimate = row.get(column)
    else:
        estimate, end = row.get(figure.kind.column), "value"
    if estimate is None:
        return None
    if isinstance(estimate, Estimate):
        estimate = estimate if names == list(figure.conditions) else -estimate
        return float(getattr(estimate, end))
    if figure.name == "k_eq":
        return 0.0 if estimate == "<1" else float(estimate)
    return (
        float(estimate) if names == list(figure.conditions) or figure.is_count else -float(estimate)
    )


def _list_conditions(row: Row) -> Iterator[str]:
    """Yield the conditions that a row is about: one, or the two of a difference."""
    if "a" in row:
        yield from (row["a"], row["b"])
    elif "original" in row:
        yield from (row["condition"], row["original"])
    elif "condition" in row or "model" in row:
        yield row.get("condition", row.get("model"))
