"""The report's folder: complete or absent, linked to nothing outside."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.report import replace_folder
from tests.kit.runs import make_base_run


def read_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture
def report_folder(base_root: Path) -> Path:
    """The report of a base run. That it is written again with the same bytes, verify checks."""
    return make_base_run(base_root, "demo") / "reported/run/report"


def test_writes_all_files(report_folder: Path) -> None:
    figures = {f"figures/{name}.svg" for name in ("contrasts", "flows", "pass_at_k")}
    tables = {f"tables/{name}.csv" for name in ("conditions", "contrasts", "items", "problems")}
    pages = {"index.html", "index.md", "explorer.html", "results.json"}
    assert pages | figures | tables <= {*read_files(report_folder)}


@pytest.mark.parametrize("names", [["results.json", "notes.txt"], ["index.html"]])
def test_does_not_replace_files_of_others(names: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    with pytest.raises(UserError) as caught:
        replace_folder(folder, {"results.json": b"{}"})
    assert str(folder) in str(caught.value)
    assert read_files(folder) == dict.fromkeys(names, b"mine")


def test_failed_write_leaves_the_old_folder(tmp_path: Path) -> None:
    replace_folder(tmp_path / "report", {"results.json": b"old"})
    with pytest.raises(GapftError):
        replace_folder(tmp_path / "report", {"results.json": b"new", "results.json/x": b""})
    assert read_files(tmp_path) == {"report/results.json": b"old"}


def test_page_links_only_to_the_explorer(report_folder: Path) -> None:
    page = (report_folder / "index.html").read_text("utf-8")
    assert not re.search(r"<(script|link|iframe|object|base|form)\b", page)
    links = re.findall(r'\b(?:src|srcset|href)="([^"]*)"', page)
    assert links
    allowed = ("#", "explorer.html", "data:image/svg+xml;base64,")
    assert all(link.startswith(allowed) for link in links)
    rows = json.loads((report_folder / "results.json").read_text("utf-8"))["cases"]
    assert {f"explorer.html#{row['problem_id']}" for row in rows} <= {*links}
