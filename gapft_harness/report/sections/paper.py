"""Comparison with the paper: the values that it prints, as given in the recipe."""

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
    Column("printed", "paper", "written"),
    Column("measured", "this run", "written"),
    Column("difference", "difference", "written"),
    Column("standard_errors"),
    Column("off", "off", "written"),
)


def measure_conditions(
    recipe: Mapping[str, Any], tables: Sequence[Table], conditions: Sequence[str]
) -> list[PublishedValue]:
    """List a recipe's printed values of conditions, with those of the report's tables.

    Args:
        recipe: the recipe.
        tables: the tables of all sections.
        conditions: the conditions of the report; values of other conditions are left out.
    """
    return [
        published
        if published.reason
        else replace(published, measured=_find_value(published, tables))
        for published in list_published(recipe)
        if published.conditions and {*published.conditions} <= {SOURCE, *conditions}
    ]


def build_paper(values: Sequence[PublishedValue]) -> Section:
    """Build the section, with a warning where the source differs from the paper's."""
    warnings = [DIFFERENT_SOURCE] if any(published.is_far for published in values) else []
    table = Table("paper", _COLUMNS, list(map(_build_row, values)), _NOTE)
    return Section("Comparison with the paper", tables=[table], warnings=warnings)


def _build_row(published: PublishedValue) -> Row:
    subject = (
        " \N{MINUS SIGN} ".join(map(condition_name, published.conditions)) or published.subject
    )
    row = {
        "label": f"{subject}: {published.label.partition(': ')[2]}",
        "of": published.subject,
        "figure": published.quantity,
        "source": published.table,
        "paper": published.printed,
        "here": published.measured,
        "printed": published.format_value(published.printed),
        "measured": None,
        "difference": None,
        "standard_errors": published.standard_errors,
        "off": None,
    }
    if published.measured is not None:
        row["measured"] = published.format_value(published.measured)
        row["difference"] = published.format_difference(published.measured - published.printed)
    if published.standard_errors is not None:
        row["off"] = f"{published.standard_errors:.1f}"
    return row


def _find_value(published: PublishedValue, tables: Sequence[Table]) -> float | None:
    """Find a quantity's value in tables; of several seeds the mean; None: they do not have it."""
    values = [
        value
        for table in tables
        if table.name == published.definition.table
        or table.name.startswith(f"{published.definition.table}_")
        for row in table.rows
        if (value := _read_value(published, row)) is not None
    ]
    if not values:
        return None
    return fmean(values) if published.is_count else 100 * fmean(values)


def _read_value(published: PublishedValue, row: Row) -> float | None:
    """Read a quantity's value in a row; None: the row has a different subject, or no value."""
    names = list(_list_conditions(row))
    if published.k and str(row.get("K")) != published.k:
        return None
    if {*names} != {*published.conditions}:
        return None
    column, _, end = published.definition.column.rpartition("_")
    if end in ("low", "high"):
        estimate = row.get(column)
    else:
        estimate = row.get(published.definition.column)
        end = "value"
    if estimate is None:
        return None
    if isinstance(estimate, Estimate):
        estimate = estimate if names == list(published.conditions) else -estimate
        return float(getattr(estimate, end))
    if published.quantity_name == "k_eq":
        return 0.0 if estimate == "<1" else float(estimate)
    return (
        float(estimate)
        if names == list(published.conditions) or published.is_count
        else -float(estimate)
    )


def _list_conditions(row: Row) -> Iterator[str]:
    """Yield the conditions that a row is about: one, or the two of a difference."""
    if "a" in row:
        yield from (row["a"], row["b"])
    elif "original" in row:
        yield from (row["condition"], row["original"])
    elif "condition" in row or "model" in row:
        yield row.get("condition", row.get("model"))
