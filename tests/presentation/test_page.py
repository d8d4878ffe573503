"""One set of rows becomes HTML, Markdown, terminal output, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from fractions import Fraction
from html import unescape

import pytest
from rich.console import Console

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.presentation.content import (
    Column,
    Figure,
    Section,
    Table,
    format_value,
)
from gapft_harness.presentation.figures import forest, lines
from gapft_harness.presentation.page import Page

GAIN = Estimate(Fraction(23, 1000), 0.004, 0.044)
HOSTILE = "<b>|x|</b>\u202e`$y$`\x1b[2J"


def build_page() -> Page:
    columns = [
        Column("name", "model"),
        Column("gain", "gain (points)", "points"),
        Column("count", "problems", "count"),
        Column("K_eq", "K_eq", "written"),
        Column("secret"),
    ]
    rows = [
        {"name": HOSTILE, "gain": GAIN, "count": 1367, "K_eq": "<1", "secret": Fraction(1, 3)},
        {"name": "b", "gain": None, "secret": 0.0},
    ]
    figure = Figure("gain", forest([(HOSTILE, GAIN)], "points"), f"alt {HOSTILE}", "A caption.")
    section = Section("", ["An answer."], [Table("models", columns, rows, "A note.")], [figure])
    folded = Table("more", columns[:1], rows, folded="More")
    items = Table("items", [Column("id")], [{"id": 1}], csv_only=True)
    return Page("made", HOSTILE, [section, Section("Two", [], [folded], [], ["Cut."])], [items])


def test_files_have_equal_unrounded_rows() -> None:
    files = build_page().build_files()
    results = json.loads(files["results.json"])
    assert results["models"][0] == {
        "name": HOSTILE, "gain": 0.023, "gain_low": 0.004, "gain_high": 0.044, "count": 1367,
        "K_eq": "<1", "secret": 1 / 3,
    }  # fmt: skip
    assert results["models"][1]["gain_low"] is None, "all rows have the same keys"
    assert results["warnings"] == ["Cut."]
    assert "items" not in results
    read = list(csv.DictReader(io.StringIO(files["tables/models.csv"].decode(), newline="")))
    assert [float(row["secret"]) for row in read] == [1 / 3, 0.0]
    assert read[1]["gain_high"] == ""
    assert files["tables/items.csv"] == b"id\n1\n"


def test_all_outputs_show_the_same_cells() -> None:
    page = build_page()
    console = Console(width=80, record=True, file=io.StringIO())
    page.print(console)
    markup = page.to_html()
    tags = {*re.findall(r"<(\w+)", markup)}
    html = unescape(re.sub("<[^>]*>", "", markup)).replace("\xa0", " ")
    for text in (html, page.to_markdown(), console.export_text()):
        for part in ("+2.3 [+0.4, +4.4]", "1,367", "An answer.", "A note.", "Cut.", "–", "Two"):
            assert part in text
        assert "secret" not in text
        assert "<U+202E>" in text.replace("\\", "")
        assert "\x1b[2J" not in text
    assert "| :-- | --: | --: | --: |" in page.to_markdown(), "numbers are aligned right"
    assert "details" in tags
    assert not {"b", "script"} & tags


def test_terminal_keeps_numbers_on_one_line() -> None:
    page = build_page()
    console = Console(width=20, record=True, file=io.StringIO())
    page.print(console)
    assert "+2.3 [+0.4, +4.4]" in console.export_text()
    assert console.width == 20


@pytest.mark.parametrize(
    ("value", "format", "expected"),
    [
        (Estimate(0.72, 0.66, 0.78), "share", "72.0% [66.0, 78.0]"),
        (Estimate(0, -0.0001, 0.0), "points", "0.0 [0.0, 0.0]"),
        (Estimate(-0.5), "points", "−50.0"),
        (0.0001, "p", "<0.001"),
        (1367, "count", "1,367"),
        ("x", "text", "x"),
        ("<1", "written", "<1"),
    ],
)
def test_formats_values(value: object, format: str, expected: str) -> None:
    assert format_value(value, format) == expected  # type: ignore[arg-type]


def test_figures_are_reproducible_and_name_their_lines() -> None:
    curve = {k: Estimate(k / 10, k / 10 - 0.05, k / 10 + 0.05) for k in range(1, 9)}
    drawings = [lines("$x$", curve, "k", {"greedy": Estimate(0.3, 0.2, 0.4)}) for _ in "ab"]
    assert drawings[0] == drawings[1]
    assert drawings[0].startswith("<?xml")
