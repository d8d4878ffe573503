"""Declared tables: one declaration gives results, CSV file and page."""

from __future__ import annotations

from gapft_harness.api import Column, Frame
from gapft_harness.report.rendering import markdown, page
from gapft_harness.report.rendering.blocks import Section, Table


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
