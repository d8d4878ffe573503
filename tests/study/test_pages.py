"""Tables of several reports keep every column and mark when they are joined."""

from __future__ import annotations

from gapft_harness.presentation.content import Column, Table
from gapft_harness.study.page import join_tables

RATE = Column("rate", "Pass@1", "share")


PLAIN = Table("rates", [RATE], [{"rate": 0.5}])


def test_columns_of_any_cell_are_kept() -> None:
    more = Table("rates", [RATE, Column("extra", "extra")], [{"rate": 0.5, "extra": "x"}])
    (joined,) = join_tables({"A": [PLAIN], "B": [more]})
    assert [column.key for column in joined.columns] == ["cell", "rate", "extra"]
    first, second = joined.list_entries()
    assert (first["extra"], second["extra"], second["rate"]) == (None, "x", 0.5)
    assert joined.columns[2].format_cell(joined.rows[0]) == ""


def test_marks_of_any_cell_are_kept() -> None:
    marked = Table("rates", [Column("rate", "Pass@1 †", "share")], [{"rate": 0.5}])
    for tables in ({"A": [marked], "B": [PLAIN]}, {"A": [PLAIN], "B": [marked]}):
        (joined,) = join_tables(tables)
        assert [column.title for column in joined.titled] == ["cell", "Pass@1 †"]
