"""Failed commands leave existing run directories unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe, run_stages_alone
from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.command import gapft

#: A split that the demo's task does not have.
NO_SUCH_SPLIT = "experiments.scaling.calibration=validation"


def read_files(folder: Path) -> dict[str, bytes]:
    """Return every file except locks, by path; the manifest, which has timings, as empty."""
    return {
        p.relative_to(folder).as_posix(): b"" if p.name == "manifest.json" else p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.endswith(".lock")
    }


@pytest.fixture(params=["a recipe alone", "an empty folder", "half a table"])
def interrupted_run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a run that was interrupted before anything was generated."""
    path = RunDirectory.create_or_open(tmp_path / "run", resolve_recipe(Options("demo"))).path
    if request.param != "a recipe alone":
        (path / "pool").mkdir()
    if request.param == "half a table":
        (path / "pool" / ".problems.parquet.partial").write_text("half")
    return path


@pytest.mark.parametrize("stage", ["states", "select", "train", "audit", "report"])
def test_failed_stage_keeps_interrupted_run(interrupted_run: Path, stage: str) -> None:
    files_before = read_files(interrupted_run)
    with pytest.raises(UserError):
        run_stages_alone([stage], str(interrupted_run), Options())
    assert read_files(interrupted_run) == files_before


def test_failed_search_keeps_interrupted_run(interrupted_run: Path) -> None:
    files_before = read_files(interrupted_run)
    with pytest.raises(UserError, match="--split calibration"):
        run_stages_alone(["search"], str(interrupted_run), Options(splits=["calibration"]))
    done = gapft("run", "demo", "--set", NO_SUCH_SPLIT, "--run-dir", interrupted_run)
    assert (done.returncode, "validation_split is missing" in done.stderr) == (2, True)
    assert read_files(interrupted_run) == files_before


def test_report_names_missing_selection(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path / "run", resolve_recipe(Options("demo")))
    files_before = read_files(tmp_path / "run")
    done = gapft("run", tmp_path / "run", "--only", "report")
    assert (done.returncode, "nothing is selected yet" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr
    assert read_files(tmp_path / "run") == files_before


def test_failed_command_removes_its_new_run(tmp_path: Path) -> None:
    done = gapft("run", "demo", "--set", NO_SUCH_SPLIT, "--run-dir", tmp_path / "run")
    assert (done.returncode, "validation_split is missing" in done.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
