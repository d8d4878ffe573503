"""The report's folder: reproducible bytes, complete or absent, linked to nothing outside."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.report import replace_folder, write_report
from gapft_harness.report.reading.inputs import ReportInputs
from tests.report import planted
from tests.report.written_run import write_run


def read_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> ReportInputs:
    run = tmp_path_factory.mktemp("planted")
    inputs = planted.build_inputs(sizes=(40, 35, 25))
    write_run(run, inputs)
    return replace(inputs, run_path=run)


@pytest.fixture(scope="module")
def report_folder(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "report"
    write_report(inputs, folder)
    return folder


def test_writes_all_files_and_the_same_bytes_again(
    inputs: ReportInputs, report_folder: Path, tmp_path: Path
) -> None:
    files = read_files(report_folder)
    figures = {f"figures/{name}.svg" for name in ("contrasts", "flows", "pass_at_k")}
    tables = {f"tables/{name}.csv" for name in ("conditions", "contrasts", "items", "problems")}
    assert {"index.html", "index.md", "explorer.html", "results.json"} | figures | tables <= {
        *files
    }
    assert [path.name for path in report_folder.parent.iterdir()] == ["report"]
    write_report(inputs, tmp_path / "report")
    assert read_files(tmp_path / "report") == files


@pytest.mark.parametrize("names", [["results.json", "notes.txt"], ["index.html"]])
def test_does_not_replace_files_of_others(names: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    with pytest.raises(UserError) as caught:
        replace_folder(folder, {"results.json": b"{}"})
    assert str(folder) in str(caught.value)
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        names, "mine"
    )


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
