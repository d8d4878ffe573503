"""Pages whose commands work on README's demo run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.readme import run_blocks

pytestmark = pytest.mark.xdist_group("demo")

DOCS = Path(__file__).parents[2] / "docs"


def run_page(page: str, demo_run: Path, folder: Path) -> str:
    """What the page's commands print, run beside the demo's run."""
    (folder / "runs").mkdir()
    (folder / "runs" / "demo").symlink_to(demo_run)
    run_blocks(DOCS / page, folder)
    return (folder / "log.txt").read_text()


def test_import_export(demo_run: Path, tmp_path: Path) -> None:
    log = run_page("import-export.md", demo_run, tmp_path)
    assert "exported/axolotl/gapft-seed13.yaml" in log
    assert (tmp_path / "exported" / "llama-factory" / "dataset_info.json").is_file()
    assert "exported/evidence/data/audit.parquet" in log
    assert "exported/tables/contrasts.tex" in log


def test_evaluating_adapters(demo_run: Path, tmp_path: Path) -> None:
    log = run_page("evaluating-adapters.md", demo_run, tmp_path)
    rows = [line.split() for line in log.splitlines()]
    told = {
        row[0]: row for row in rows if row and row[0].startswith("evaluated/") and "%" in row[1]
    }
    assert set(told) == {"evaluated/gapft-seed13", "evaluated/replay"}
