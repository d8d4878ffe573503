"""Declared tables: one declaration gives results, CSV file and page."""

from __future__ import annotations

from fractions import Fraction

from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering import markdown, page
from gapft_harness.report.rendering.blocks import Section, Table
from gapft_harness.report.rendering.document import format_csv
from gapft_harness.report.rendering.wording import percent

Row = tuple[str, Fraction | None, int]
COLUMNS: tuple[Column[Row], ...] = (
    Column("condition", "", lambda row: row[0], "condition"),
    Column(
        "rate", "share that is right", lambda row: row[1], "rate", percent, lambda row: row[2] < 30
    ),
    Column("counts", "how many", lambda row: {"S": row[2], "U": 1}, names=("n_S", "n_U")),
    Column("few", "", lambda row: ("S",) if row[2] < 30 else ()),
    Column("same", "", lambda row: row[2] == 30),
)
FRAME = Frame(COLUMNS, [("a", Fraction(1, 3), 30), ("b", Fraction(1, 2), 4), ("c", None, 0)])


def test_results_hold_unrounded_values() -> None:
    assert FRAME.entries()[0] == {
        "condition": "a", "rate": 1 / 3, "counts": {"S": 30, "U": 1}, "few": [], "same": True,
    }  # fmt: skip
    assert FRAME.entries()[2]["rate"] is None


def test_csv_has_column_per_number() -> None:
    assert format_csv(FRAME.csv()).splitlines() == [
        "condition,rate,n_S,n_U,few,same",
        f"a,{1 / 3},30,1,,true",
        "b,0.5,4,1,S,false",
        "c,,0,1,S,false",
    ]


def test_page_shows_titled_columns_and_marks_small_samples() -> None:
    table = FRAME.table("A note.")
    assert list(table.columns) == ["condition", "rate"]
    assert [list(row) for row in table.rows] == [["a", "33.3%"], ["b", "50.0%†"], ["c", "–"]]
    assert table.note == "A note."


def test_row_marks_best_and_second_best() -> None:
    """Only ranked columns count; equal numbers share a rank, and missing ones have none."""
    Numbers = tuple[int | None, ...]

    def column(place: int) -> Column[Numbers]:
        return Column("", "", lambda row: row[place], "abcd"[place], ranked=place < 3)

    columns = [column(place) for place in range(4)]
    rows: list[Numbers] = [(1, 3, 2, 9), (2, 2, 1, 0), (1, None, 3, 0), (None, None, None, 1)]
    assert Frame(columns, rows).table().ranks == {
        (0, 1): "best", (0, 2): "second",
        (1, 0): "best", (1, 1): "best",
        (2, 2): "best", (2, 0): "second",
    }  # fmt: skip


def test_every_rendering_marks_ranks() -> None:
    table = Table(["cell", "a", "b"], [["x", "1", "2"]], ranks={(0, 2): "best", (0, 1): "second"})
    sections = [Section("Main", [table])]
    assert "| x | <u>1</u> | **2** |" in markdown.render_markdown("t", "", sections)
    html = page.render_page("t", "", sections, [], {})
    assert "<td><u>1</u></td><td><b>2</b></td>" in html


def test_mapped_column_keeps_value_mark_and_placeholder() -> None:
    rate = COLUMNS[1]
    whole = rate.map_rows(lambda pair: pair[0])
    rows: list[tuple[Row | None]] = [(("a", Fraction(1, 2), 4),), (("b", None, 0),), (None,)]
    assert [whole.format_cell(row) for row in rows] == ["50.0%†", "–", "–"]
    assert [whole.value(row) for row in rows] == [Fraction(1, 2), None, None]
    assert (whole.key, whole.title, whole.meaning) == (rate.key, rate.title, rate.meaning)
    assert rate.map_rows(lambda pair: pair[0], missing="ref.").format_cell((None,)) == "ref."
