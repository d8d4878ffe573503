"""Declared tables: each column is defined once, for the page, CSV files and results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.report.rendering.blocks import Rank, Table
from gapft_harness.report.rendering.wording import UNSTABLE

Row = TypeVar("Row")
LargerRow = TypeVar("LargerRow")

#: Rows of a CSV table; the first names the columns.
Rows = Iterator[Sequence[object]]

#: Columns of a CSV file for the ends of an interval.
CI95 = ("ci95_low", "ci95_high")

#: The text in docs/columns.md for columns without a meaning of their own.
AS_REPORT = "identifies the row, or as in the report"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One quantity of a table.

    Attributes:
        key: the name in results.json and in the CSV file; empty: the column is in neither.
        meaning: the explanation in docs/columns.md; empty: the title explains the column.
        value: returns the exact value of a row: a text, a number, None where it is undefined, or
            several values. A CSV file has several values in one cell, or with ``names`` in one cell
            each.
        title: the heading on the page; None: the column is not shown there. Words in
            capitals are placeholders that a table replaces, such as a condition's name.
        shown: formats a value for the page.
        unstable: whether a row's value is based on few problems and is marked.
        names: the columns of a CSV file, where they differ from ``key``.
        missing: the text where a row has no value.
        ranked: whether the values are compared with the other ranked values of the row: the best is
            shown bold, the second-best underlined.
    """

    key: str
    meaning: str
    value: Callable[[Row], Any]
    title: str | None = None
    shown: Callable[[Any], str] = str
    unstable: Callable[[Row], bool] = lambda row: False
    names: Sequence[str] = ()
    missing: str = "–"
    ranked: bool = False

    def format_cell(self, row: Row) -> str:
        """Format a row's value for people."""
        value = self.value(row)
        if value is None:
            return self.missing
        return self.shown(value) + (UNSTABLE if self.unstable(row) else "")

    def map_rows(
        self, find_row: Callable[[LargerRow], Row | None], missing: str | None = None
    ) -> Column[LargerRow]:
        """Return the same column for larger rows that contain such a row, or none.

        Args:
            find_row: returns the row inside a larger row; None where the larger row has none.
            missing: the text for a larger row without a row; default: this column's ``missing``.
        """

        def value(larger: LargerRow) -> Any:
            row = find_row(larger)
            return None if row is None else self.value(row)

        def unstable(larger: LargerRow) -> bool:
            row = find_row(larger)
            return row is not None and self.unstable(row)

        return Column(
            *(self.key, self.meaning, value, self.title, self.shown, unstable, self.names),
            self.missing if missing is None else missing,
            self.ranked,
        )


@dataclass(frozen=True, slots=True)
class Frame(Generic[Row]):
    """Rows under declared columns: ``table()``, ``csv()``, ``entries()`` for results.json.

    Attributes:
        columns: in order.
        rows: objects that the columns' ``value`` functions accept.
    """

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]

    def entries(self) -> list[dict[str, Any]]:
        """Return the table for results.json: one object for each row."""
        columns = [column for column in self.columns if column.key]
        return [
            {field.key: _to_json_value(field.value(row)) for field in columns} for row in self.rows
        ]

    def csv(self) -> Rows:
        """Yield the rows of a CSV file, unrounded; the first row has the column names."""
        columns = [column for column in self.columns if column.key]
        yield [name for field in columns for name in field.names or (field.key,)]
        for row in self.rows:
            yield [
                cell
                for field in columns
                for cell in _to_csv_cells(_to_json_value(field.value(row)), field.names)
            ]

    def table(
        self,
        note: str = "",
        words: int = 1,
        summary: str = "",
        links: Mapping[str, str] | None = None,
        fill: Mapping[str, str] | None = None,
    ) -> Table:
        """Return the table for the page and the terminal; see ``blocks.Table``.

        Args:
            note: a sentence below the table.
            words: the number of columns at the left that contain text.
            summary: the line that is shown until the table is opened; empty: the table is open.
            links: addresses by the text of the first column.
            fill: replacements for the placeholders in titles.
        """
        titled = [(column.title, column) for column in self.columns if column.title is not None]
        rows = [[column.format_cell(row) for _, column in titled] for row in self.rows]
        ranks = {
            (number, place): rank
            for number, row in enumerate(self.rows)
            for place, rank in _rank_cells([column for _, column in titled], row)
        }
        titles = [title for title, _ in titled]
        for word, name in (fill or {}).items():
            titles = [title.replace(word, name) for title in titles]
        return Table(titles, rows, words, note, summary, links or {}, ranks)


def _rank_cells(columns: Sequence[Column[Row]], row: Row) -> Iterator[tuple[int, Rank]]:
    """Yield the best and second-best of a row's ranked values; equal values share a rank."""
    values = {
        place: value
        for place, column in enumerate(columns)
        if column.ranked and (value := column.value(row)) is not None
    }
    best = [place for place, value in values.items() if value == max(values.values())]
    yield from ((place, "best") for place in best)
    if len(best) == 1:
        others = {place: value for place, value in values.items() if place not in best}
        for place, value in others.items():
            if value == max(others.values()):
                yield place, "second"


def format_reference(columns: Iterable[Column[Any]]) -> list[str]:
    """Return Markdown rows for docs/columns.md: one for all columns with the same meaning."""
    titles: dict[str, dict[str, None]] = {AS_REPORT: {}}
    for column in columns:
        if column.title:
            titles.setdefault(column.meaning or AS_REPORT, {})[f"`{column.title}`"] = None
    explained = {
        title for meaning, names in titles.items() if meaning != AS_REPORT for title in names
    }
    titles[AS_REPORT] = {title: None for title in titles[AS_REPORT] if title not in explained}
    rows = ((", ".join(names), meaning) for meaning, names in titles.items() if names)
    return [f"| {left} | {right} |" for left, right in (map(_escape_pipes, row) for row in rows)]


def _escape_pipes(text: str) -> str:
    return text.replace("|", "\\|")


def _to_json_value(value: Any) -> Any:
    """Convert a value to one that JSON can represent."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, Estimate):
        return [value.low, value.high] if value.has_interval else None
    if isinstance(value, Mapping):
        return {key: _to_json_value(item) for key, item in value.items()}
    return [_to_json_value(item) for item in value] if isinstance(value, tuple | list) else value


def _to_csv_cells(value: Any, names: Sequence[str] = ()) -> Iterator[object]:
    """Convert a value to CSV cells: one for each of several names, else a single cell."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif len(names) > 1:
        yield from value or [""] * len(names)
    elif isinstance(value, list):
        yield " ".join(map(str, value))
    elif isinstance(value, bool):
        yield str(value).lower()
    else:
        yield "" if value is None else value
