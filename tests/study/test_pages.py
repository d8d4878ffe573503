"""Tables of several reports are joined by name, with the cell as the first column."""

from __future__ import annotations

import csv
import io

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.presentation.content import Column, Section, Table
from gapft_harness.presentation.page import Page
from gapft_harness.study.page import join_tables

RATE = Column("rate", "Pass@1", "share")


def build_table(name: str, *rates: float, **changes: object) -> Table:
    """Build a table of rates, each with an interval."""
    rows = [{"rate": Estimate(rate, rate - 0.1, rate + 0.1)} for rate in rates]
    return Table(name, [RATE], rows, **changes)  # type: ignore[arg-type]


def test_tables_are_joined_by_name() -> None:
    first, second = build_table("rates", 0.25, 0.5), build_table("rates", 0.75)
    only = build_table("only", 1.0)
    joined = join_tables({"A": [first, only], "B / b": [second]})
    assert [table.name for table in joined] == ["rates", "only"]
    entries = joined[0].list_entries()
    assert [next(iter(entry)) for entry in entries] == ["cell"] * 3
    assert [(entry["cell"], entry["rate"]) for entry in entries] == [
        ("A", 0.25), ("A", 0.5), ("B / b", 0.75),
    ]  # fmt: skip
    assert [entry["rate_high"] for entry in entries] == [0.35, 0.6, 0.85]
    assert joined[1].list_entries() == [{"cell": "A", **only.list_entries()[0]}]


def test_columns_of_any_cell_are_kept() -> None:
    more = Table("rates", [RATE, Column("extra", "extra")], [{"rate": 0.5, "extra": "x"}])
    (joined,) = join_tables({"A": [build_table("rates", 0.5)], "B": [more]})
    assert [column.key for column in joined.columns] == ["cell", "rate", "extra"]
    first, second = joined.list_entries()
    assert (first["extra"], second["extra"], second["rate"]) == (None, "x", 0.5)
    assert joined.columns[2].format_cell(joined.rows[0]) == ""


def test_marks_of_any_cell_are_kept() -> None:
    marked = Table("rates", [Column("rate", "Pass@1 †", "share")], [{"rate": 0.5}])
    plain = Table("rates", [RATE], [{"rate": 0.5}])
    for tables in ({"A": [marked], "B": [plain]}, {"A": [plain], "B": [marked]}):
        (joined,) = join_tables(tables)
        assert [column.title for column in joined.titled] == ["cell", "Pass@1 †"]


def test_join_keeps_where_a_table_is_shown() -> None:
    hidden = Table("contrasts", [Column("delta")], [{"delta": 0.5}])
    folded = build_table("", 0.5, folded="The others")
    excerpt = build_table("", 0.25)
    problems = Table("items", [Column("problem")], [{"problem": "p"}], csv_only=True)
    cell = [hidden, excerpt, folded, problems]
    joined = join_tables({"A": cell, "B": cell})
    assert [table.name for table in joined] == ["contrasts", "", ""]
    assert joined[0].titled == []
    assert [table.folded for table in joined] == ["", "", "The others"]
    assert [[row["cell"] for row in table.rows] for table in joined] == [["A", "B"]] * 3
    page = Page("index", "Study", [Section("", tables=joined)])
    assert list(page.list_results()) == ["schema", "contrasts", "warnings"]
    text = page.build_files()["tables/contrasts.csv"].decode()
    assert list(csv.reader(io.StringIO(text))) == [["cell", "delta"], ["A", "0.5"], ["B", "0.5"]]
    assert page.to_markdown().count("| cell | Pass@1 |") == 2
