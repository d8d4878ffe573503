"""A declared table: each quantity is written once, and every form of the table is made of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.report.rendering.blocks import Rank, Table
from gapft_harness.report.rendering.wording import UNSTABLE

Row = TypeVar("Row")
Whole = TypeVar("Whole")

#: Rows of a CSV table; the first names the columns.
Rows = Iterator[Sequence[object]]

#: Columns of a CSV file for the ends of an interval.
CI95 = ("ci95_low", "ci95_high")

#: What docs/columns.md says of the columns that have no meaning of their own.
AS_REPORT = "which, or as in the report"


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One quantity of a table.

    Attributes:
        key: its name in results.json and in the CSV file; empty: people alone are shown it.
        meaning: for the reference; empty: it says what it is, or is as in every report.
        value: of a row, exact: a text, a number, None where it is undefined, or several of them,
            which a CSV file has in one cell, or under ``names`` in a cell each.
        title: its heading on the page and in LaTeX; None: it is not shown there. What a table
            fills in, such as a condition's name, is in capitals.
        shown: how a value is written there; None is ``missing``.
        unstable: whether a row's value rests on few problems and is marked.
        names: of its columns in a CSV file, where they are others than ``key``.
        missing: what is written where a row has no value.
        ranked: whether its numbers are compared with the row's others that are ranked: the best is
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

    def cell(self, row: Row) -> str:
        """A row's value as people read it."""
        value = self.value(row)
        if value is None:
            return self.missing
        return self.shown(value) + (UNSTABLE if self.unstable(row) else "")

    def of(self, part: Callable[[Whole], Row | None], missing: str | None = None) -> Column[Whole]:
        """Make the same column for rows that hold such a row, or may lack it.

        Args:
            part: of a larger row the row that this column is of; None: it has none.
            missing: what is written then; default: as here.
        """

        def value(whole: Whole) -> Any:
            row = part(whole)
            return None if row is None else self.value(row)

        def unstable(whole: Whole) -> bool:
            row = part(whole)
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
        rows: anything that the columns' ``value`` functions take.
    """

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]

    def entries(self) -> list[dict[str, Any]]:
        """For results.json: an object for each row."""
        kept = [column for column in self.columns if column.key]
        return [{of.key: _plain(of.value(row)) for of in kept} for row in self.rows]

    def csv(self) -> Rows:
        """For a CSV file, unrounded; the first row names the columns."""
        kept = [column for column in self.columns if column.key]
        yield [name for of in kept for name in of.names or (of.key,)]
        for row in self.rows:
            yield [cell for of in kept for cell in _cells(_plain(of.value(row)), of.names)]

    def table(
        self,
        note: str = "",
        words: int = 1,
        summary: str = "",
        links: Mapping[str, str] | None = None,
        fill: Mapping[str, str] | None = None,
    ) -> Table:
        """For the page, the terminal and LaTeX; see ``blocks.Table``.

        Args:
            fill: of words in titles what takes their place.
        """
        shown = [(column.title, column) for column in self.columns if column.title is not None]
        rows = [[column.cell(row) for _, column in shown] for row in self.rows]
        ranks = {
            (number, place): rank
            for number, row in enumerate(self.rows)
            for place, rank in _ranks([column for _, column in shown], row)
        }
        titles = [title for title, _ in shown]
        for word, name in (fill or {}).items():
            titles = [title.replace(word, name) for title in titles]
        return Table(titles, rows, words, note, summary, links or {}, ranks)


def _ranks(columns: Sequence[Column[Row]], row: Row) -> Iterator[tuple[int, Rank]]:
    """Find the best and the second-best of a row's ranked numbers; equal ones share a rank."""
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


def reference(columns: Iterable[Column[Any]]) -> list[str]:
    """Rows of the reference on what is shown: one for the columns of one meaning."""
    titles: dict[str, dict[str, None]] = {AS_REPORT: {}}
    for column in columns:
        if column.title:
            titles.setdefault(column.meaning or AS_REPORT, {})[f"`{column.title}`"] = None
    said = {title for meaning, of in titles.items() if meaning != AS_REPORT for title in of}
    titles[AS_REPORT] = {title: None for title in titles[AS_REPORT] if title not in said}
    rows = ((", ".join(of), meaning) for meaning, of in titles.items() if of)
    return [f"| {left} | {right} |" for left, right in (map(_escaped, row) for row in rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, Interval):
        return [value.low, value.high]
    if isinstance(value, Mapping):
        return {key: _plain(of) for key, of in value.items()}
    return [_plain(of) for of in value] if isinstance(value, tuple | list) else value


def _cells(value: Any, names: Sequence[str] = ()) -> Iterator[object]:
    """A value as CSV has it: a cell for each of several names, else one."""
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
