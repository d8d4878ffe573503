"""The closing lines of a run agree with its report."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from gapft_harness.cli.summary import print_summary
from gapft_harness.report import write_report
from gapft_harness.report.reading.inputs import ReportInputs
from tests.report import planted


def read_summary(inputs: ReportInputs, folder: Path, width: int = 80) -> str:
    """Write a report and return its summary, and check that it repeats cells of the page."""
    write_report(inputs, folder)
    text = io.StringIO()
    print_summary(folder / "results.json", Console(file=text, width=width, highlight=False))
    return text.getvalue()


def test_first_screen_has_warnings_answer_and_every_condition(tmp_path: Path) -> None:
    inputs = planted.build_inputs(sizes=(40, 35, 25))
    lines = read_summary(inputs, tmp_path / "report").splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("warning: pool: all 8 samples")
    page = (tmp_path / "report/index.md").read_text("utf-8")
    for label in ("source, greedy", "GapFT", "uniform", "replay", "all verified *"):
        (line,) = (line for line in lines if line.startswith(f" {label}  "))
        cells = [cell for cell in line.split("  ") if cell.strip()]
        row = next(
            row for row in page.splitlines() if row.startswith(f"| {label} ".replace("*", "\\*"))
        )
        assert [cell.strip() for cell in cells[1:]] == [
            cell.strip() for cell in row.strip("|").split("|")[1 : len(cells)]
        ]
