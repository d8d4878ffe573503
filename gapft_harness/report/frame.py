"""A declared table: each quantity is written once, and every form of the table is made of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from gapft_harness.report.part import Rows
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.rendering.wording import UNSTABLE

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One quantity of a table.

    Attributes:
        key: its name in results.json and in the CSV file.
        meaning: for docs/columns.md; empty: a row there that several tables share says it.
        value: of a row, exact: a text, a number, None where it is undefined, several names, or
            numbers by name, which the CSV file has in a column each.
        title: its heading on the page and in LaTeX; empty: it is not shown there.
        shown: how a value is written there.
        unstable: whether a row's value rests on few problems and is marked.
        names: of the columns of the CSV file, where they are others than ``key``.
    """

    key: str
    meaning: str
    value: Callable[[Row], Any]
    title: str = ""
    shown: Callable[[Any], str] = str
    unstable: Callable[[Row], bool] = lambda row: False
    names: Sequence[str] = ()

    def cell(self, row: Row) -> str:
        """A row's value as people read it."""
        value = self.value(row)
        return self.shown(value) + (UNSTABLE if value is not None and self.unstable(row) else "")


@dataclass(frozen=True, slots=True)
class Frame(Generic[Row]):
    """Rows under declared columns."""

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]

    def entries(self) -> list[dict[str, Any]]:
        """For results.json: an object for each row."""
        return [{of.key: _plain(of.value(row)) for of in self.columns} for row in self.rows]

    def csv(self) -> Rows:
        """For a CSV file, unrounded; the first row names the columns."""
        yield [name for of in self.columns for name in of.names or (of.key,)]
        for row in self.rows:
            yield [cell for of in self.columns for cell in _cells(_plain(of.value(row)))]

    def table(self, note: str = "") -> Table:
        """For the page, the terminal and LaTeX."""
        columns = [of for of in self.columns if of.title]
        rows = [[of.cell(row) for of in columns] for row in self.rows]
        return Table([of.title for of in columns], rows, note=note)


def reference(columns: Iterable[Column[Any]]) -> list[str]:
    """The lines of docs/columns.md on what a table shows: one for the columns of one meaning."""
    titles: dict[str, list[str]] = {}
    for of in columns:
        if of.title and of.meaning:
            titles.setdefault(of.meaning, []).append(f"`{of.title}`")
    return [f"| {', '.join(of)} | {meaning} |" for meaning, of in titles.items()]


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Fraction):
        return float(value)
    return [*value] if isinstance(value, tuple) else value


def _cells(value: Any) -> Iterator[object]:
    """A value as CSV has it, which may be several cells."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield " ".join(map(str, value))
    elif isinstance(value, bool):
        yield str(value).lower()
    else:
        yield "" if value is None else value
