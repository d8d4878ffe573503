"""What a page contains: columns, tables, figures and sections. Nothing here is rendered.

A row is a mapping from keys of columns to values: texts, numbers, truth values, None where a value
is undefined, and ``Estimate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from gapft_harness.analysis.estimate import Estimate

#: How a value is shown: as it is, as a problem's id with a link to the page of every problem, as a
#: count, in percent, as a difference in percentage points, as a number or a difference of numbers
#: with four digits, as a p value, or as a number that is written already, such as ``<1``.
Format = Literal["text", "problem", "count", "share", "points", "number", "change", "p", "written"]
Row = Mapping[str, Any]

_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of a table.

    Attributes:
        key: the name in results.json and in the CSV file. An estimate has the further keys
            ``key_low`` and ``key_high``.
        title: the heading on the page; None: the column is in files only.
        format: how values are shown.
    """

    key: str
    title: str | None = None
    format: Format = "text"

    @property
    def is_word(self) -> bool:
        """Whether its values are words, which are aligned left and may be wrapped."""
        return self.format in ("text", "problem")

    def add_values(self, entry: dict[str, Any], row: Row) -> None:
        """Add a row's cell to its entry for files; an estimate has three values."""
        value = row.get(self.key)
        if isinstance(value, Estimate):
            ends = (value.low, value.high) if value.has_interval else (None, None)
            entry[self.key] = float(value.value)
            entry[f"{self.key}_low"], entry[f"{self.key}_high"] = ends
        else:
            entry[self.key] = float(value) if isinstance(value, Fraction) else value

    def format_cell(self, row: Row) -> str:
        """Format a row's value for people; empty where the row has no such key."""
        if self.key not in row:
            return ""
        value = row[self.key]
        return "–" if value is None else format_value(value, self.format)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns.

    Attributes:
        name: the key in results.json, and the stem of the CSV file; empty: the rows are part of
            a different table and not written again.
        columns: in order; the first one with a title names the rows.
        rows: the rows.
        note: static text below the table.
        folded: the line that the page shows until the table is opened; empty: it is open.
        csv_only: whether the rows are left out of results.json, since there is one per problem.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""
    folded: str = ""
    csv_only: bool = False

    @property
    def titled(self) -> list[Column]:
        """The columns of the page; without any, or without rows, the table is in files only."""
        return [column for column in self.columns if column.title is not None and self.rows]

    def list_entries(self) -> list[dict[str, Any]]:
        """List the rows for results.json and the CSV file, unrounded, with equal keys."""
        entries: list[dict[str, Any]] = []
        for row in self.rows:
            entries.append({})
            for column in self.columns:
                column.add_values(entries[-1], row)
        names: dict[str, Any] = {name: None for entry in entries for name in entry}
        return [entry if len(entry) == len(names) else names | entry for entry in entries]


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing.

    Attributes:
        name: the stem of its file names.
        svg: the drawing in light colours.
        alt: a description for readers who cannot see it.
        caption: axes, marks and intervals.
    """

    name: str
    svg: str
    alt: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what is below it, in this order: warnings, text, figures, tables.

    Attributes:
        title: the heading; empty for the opening.
        text: paragraphs; the first one of an opening is its answer.
        tables: the tables.
        figures: the figures.
        warnings: what makes the numbers doubtful.
    """

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    warnings: Sequence[str] = ()
    anchor: str = field(init=False)

    def __post_init__(self) -> None:
        words = "".join(c if c.isalnum() else " " for c in self.title.lower()).split()
        object.__setattr__(self, "anchor", "-".join(words))


def add_hidden(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """Add columns without a title for the other keys of the rows, which are in files only."""
    declared = {column.key for column in columns}
    keys = dict.fromkeys(key for row in rows for key in row if key not in declared)
    return [*columns, *map(Column, keys)]


def format_value(value: Any, format: Format) -> str:
    """Format a value: ``72.0% [66.0, 78.0]``, ``+2.3 [+0.4, +4.4]``, ``1,367``, ``<0.001``."""
    if isinstance(value, Estimate):
        text = format_value(value.value, format)
        return f"{text} {_format_interval(value, format)}" if value.has_interval else text
    match format:
        case "count":
            return f"{round(value):,}"
        case "share":
            return f"{_format_hundredfold(value)}%"
        case "points":
            return _format_hundredfold(value, "+")
        case "number":
            return f"{float(value):.4g}".replace("-", _MINUS)
        case "change":
            return f"{float(value):+.4g}".replace("-", _MINUS) if value else "0"
        case "p":
            return "<0.001" if value < 0.001 else f"{value:.3f}"
        case "text" | "problem" | "written":
            return str(value)


def format_duration(seconds: float) -> str:
    """Format a duration: ``12 s``, ``3.4 min``, ``2.1 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _format_interval(estimate: Estimate, format: Format) -> str:
    low, high = (format_value(end, format) for end in (estimate.low, estimate.high))
    return f"[{low}, {high}]".replace("%", "")


def _format_hundredfold(value: Fraction | float, sign: str = "") -> str:
    """Format 100 times a number with one decimal; zero has no sign."""
    text = f"{100 * float(value):{sign}.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", _MINUS)
