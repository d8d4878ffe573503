"""What commands do to a run directory that was there before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe, run_stages_alone
from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from tests.command import gapft

#: What the demo's task does not have.
NO_SUCH_SPLIT = "experiments.scaling.calibration=validation"


def files(folder: Path) -> dict[str, bytes]:
    """Every file but the locks; how long the stages took is no part of what may be lost."""
    return {
        p.relative_to(folder).as_posix(): b"" if p.name == "manifest.json" else p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.name.endswith(".lock")
    }


@pytest.fixture(params=["a recipe alone", "an empty folder", "half a table"])
def early(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run that was interrupted before anything was generated."""
    path = RunDirectory.create_or_open(tmp_path / "run", resolve_recipe(Options("demo"))).path
    if request.param != "a recipe alone":
        (path / "pool").mkdir()
    if request.param == "half a table":
        (path / "pool" / ".problems.parquet.partial").write_text("half")
    return path


@pytest.mark.parametrize("stage", ["states", "select", "train", "audit", "report"])
def test_a_stage_that_fails_takes_nothing_of_an_early_run_away(early: Path, stage: str) -> None:
    before = files(early)
    with pytest.raises(UserError):
        run_stages_alone([stage], str(early), Options())
    assert files(early) == before


def test_nor_does_a_search_or_a_run_that_fails(early: Path) -> None:
    before = files(early)
    with pytest.raises(UserError, match="--split calibration"):
        run_stages_alone(["search"], str(early), Options(splits=["calibration"]))
    done = gapft("run", "demo", "--set", NO_SUCH_SPLIT, "--run-dir", early)
    assert (done.returncode, "validation_split is missing" in done.stderr) == (2, True)
    assert files(early) == before


def test_the_commands_report_says_what_is_missing_and_the_run_goes_on(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path / "run", resolve_recipe(Options("demo")))
    before = files(tmp_path / "run")
    done = gapft("run", tmp_path / "run", "--only", "report")
    assert (done.returncode, "nothing is selected yet" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr
    assert files(tmp_path / "run") == before


def test_a_run_that_a_failing_command_made_itself_leaves_no_trace(tmp_path: Path) -> None:
    done = gapft("run", "demo", "--set", NO_SUCH_SPLIT, "--run-dir", tmp_path / "run")
    assert (done.returncode, "validation_split is missing" in done.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
