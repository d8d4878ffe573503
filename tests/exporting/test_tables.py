"""Export of the report's tables as LaTeX and CSV, with exactly the cells of the page."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.exporting import tables
from gapft_harness.exporting.kinds import ExportChoice, export
from gapft_harness.exporting.tables import write_tables
from gapft_harness.report.rendering.blocks import Section, Table
from gapft_harness.report.rendering.markdown import escape_markdown
from gapft_harness.report.rendering.visible import make_visible
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from tests.exporting import latex_reader

TEXT = st.text(st.sampled_from("a1 [*]\\{}$&#%_~^<>|\"`'-,!?−–≥κ†\n\t\x00\u202e字é"), max_size=12)


def make_visible_line(text: str) -> str:
    return " ".join(make_visible(text).split())


@given(
    rows=st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=45),
    note=TEXT,
    words=st.integers(1, 3),
)
def test_latex_prints_text_unchanged(rows: list[list[str]], note: str, words: int) -> None:
    head, *body = rows
    tex = tables.render_latex(Table(head, body, words=words, note=note), "Title", "name")
    assert latex_reader.read_table(tex) == [
        [make_visible_line(text) for text in row] for row in rows
    ]
    assert latex_reader.read_caption(tex) == f"Title. {make_visible_line(note)}".strip()


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return [*csv.reader(file)]


def test_exports_every_report_table(planted_run: RunDirectory, tmp_path: Path) -> None:
    files = export(planted_run, "tables", ExportChoice(tmp_path / "out"))
    assert sorted(files) == sorted((tmp_path / "out").iterdir())
    page = (planted_run.path / "report" / "report.md").read_text()
    names = re.findall(r"\\input\{(.+)\.tex\}", (tmp_path / "out" / "tables.tex").read_text())
    assert len(names) == len(re.findall(r"^\| :-", page, re.M)) == (len(files) - 1) / 2
    assert {"conditions", "contrasts", "where-the-change-comes-from-2", "settings"} <= {*names}
    for name in names:
        rows = read_csv(tmp_path / "out" / f"{name}.csv")
        assert len(rows) > 1
        for row in rows:
            assert f"\n| {' | '.join(map(escape_markdown, row))} |\n" in page
        tex = (tmp_path / "out" / f"{name}.tex").read_text()
        assert latex_reader.read_table(tex) == [[*map(make_visible_line, row)] for row in rows]


def test_file_names_are_ascii_and_unique(tmp_path: Path) -> None:
    table = Table(["a"], [["b"]])
    sections = [
        Section(title, [table, table]) for title in ("", "Tables", "GapFT − x", "GapFT x 2", "κ")
    ]
    files = [path.name for path in write_tables(sections, tmp_path / "out")]
    assert files == [f"{name}.{kind}" for name in (
        *("report", "report-2", "tables-2", "tables-3", "gapft-x", "gapft-x-2"),
        *("gapft-x-2-2", "gapft-x-2-3", "report-3", "report-4"),
    ) for kind in ("tex", "csv")] + ["tables.tex"]  # fmt: skip


def test_rejects_edited_runs_and_arm_options(planted_run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="--to tables: remove --condition; it applies only to trl, ax"
    ):
        export(planted_run, "tables", ExportChoice(tmp_path / "out", conditions=["gapft"]))
    shutil.copytree(planted_run.path, tmp_path / "edited")
    edited = RunDirectory.open(tmp_path / "edited")
    path = edited.path / layout.responses_path("audit")
    path.write_bytes(path.read_bytes() + b" ")
    for kind in ("tables", "dataset"):
        with pytest.raises(UserError, match=r"audit/responses.*was changed after it was sealed"):
            export(edited, kind, ExportChoice(tmp_path / "out"))
    assert not (tmp_path / "out" / "README.md").exists()
