"""What commands say of themselves: what is there, what changes, what comes next."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from tests.command import succeed

SMALL = (
    *("--limit", "60", "--condition", "gapft", "--condition", "uniform"),
    *("--set", "search.k=2", "--set", "training.repetitions=1"),
    *("--set", "statistics.replicates=20"),
)


def contents(run: Path) -> dict[Path, bytes]:
    """What a run's files hold, but for who had it last."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "run.lock"]
    return {path: path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A finished run, what each of its stages printed, and what the same command printed again."""
    folder = tmp_path_factory.mktemp("said")
    search = ("demo", "--run-dir", "r", "--limit", "60", "--set", "search.k=2")
    more = ("conditions=[gapft,uniform]", "seeds=[13]", "training.repetitions=1")
    options = [part for key in more for part in ("--set", key)]
    replicates = ("--set", "statistics.replicates=20")
    told = [succeed("run", *search, "--only", "search", *options, *replicates, cwd=folder).stderr]
    for stage in ("states", "select", "train", "audit", "report"):
        told.append(succeed("run", "r", "--only", stage, cwd=folder).stderr)
    again = succeed("demo", "--run-dir", "r", *SMALL, "--seed", 13, cwd=folder).stderr
    return folder, "".join(told), again


def test_each_stage_says_what_comes_next(steps: tuple[Path, str, str]) -> None:
    said = [line.strip() for line in steps[1].splitlines() if "next: " in line]
    following = ("states", "select", "train", "audit", "report")
    assert said == [
        f"next: gapft run r --only {stage}, or without --only to the end" for stage in following
    ]


def test_selection_says_the_budget_of_each_condition(steps: tuple[Path, str, str]) -> None:
    (line,) = [line.strip() for line in steps[1].splitlines() if "n = " in line]
    n, exposures, steps_of, conditions = line.replace(": ", ", ", 1).split(", ", 3)
    assert n.startswith("n = ")
    assert exposures == n.replace("n", "N", 1)  # one repetition
    assert steps_of.startswith("J = ")
    assert conditions == "gapft, uniform"


def test_what_was_trained_is_not_trained_again_in_no_time(steps: tuple[Path, str, str]) -> None:
    for kind in ("train", "audit"):
        lines = [line for line in steps[2].splitlines() if f"✓ {kind}" in line]
        assert lines
        assert all(line.endswith("already there") for line in lines)
        first = [line for line in steps[1].splitlines() if f"✓ {kind}" in line]
        assert first
        assert not any("already there" in line for line in first)


def test_a_finished_run_says_before_its_headline_changes(
    steps: tuple[Path, str, str], tmp_path: Path
) -> None:
    assert "warning" not in steps[2]
    shutil.copytree(steps[0] / "r", tmp_path / "r")
    done = succeed("demo", "--run-dir", "r", *SMALL, "--seed", 14, cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert "is finished, and reports gapft, uniform under seeds 13" in said
    assert "would report gapft, uniform under seeds 13, 14" in said
    assert said.index("is finished") < said.index("✓ train")
    there, *new = [line for line in done.stderr.splitlines() if "✓ train" in line]
    assert "seed13 and 1 more" in there
    assert there.endswith("already there")
    assert new
    assert not any("seed13" in line or "already there" in line for line in new)


def test_on_a_terminal_the_change_is_asked_for(
    steps: tuple[Path, str, str], tmp_path: Path
) -> None:
    shutil.copytree(steps[0] / "r", tmp_path / "r")
    before = contents(tmp_path / "r")
    main, side = pty.openpty()
    command = [sys.executable, "-m", "gapft_harness.cli.main", "demo", "--run-dir", "r", *SMALL]
    with subprocess.Popen(
        [*command, "--seed", "14"], cwd=tmp_path, stdin=side, stdout=side, stderr=side
    ) as process:
        os.close(side)
        os.write(main, b"n\n")
        shown = b""
        while True:
            try:
                shown += (part := os.read(main, 4096))
            except OSError:  # the command has ended
                break
            if not part:
                break
    os.close(main)
    assert process.returncode == 2
    assert "Change this run?" in shown.decode()
    assert "left as it is" in shown.decode()
    assert contents(tmp_path / "r") == before


def test_export_lists_folders(steps: tuple[Path, str, str], tmp_path: Path) -> None:
    run, out = str(steps[0] / "r"), tmp_path / "out"
    done = CliRunner().invoke(app, ["export", run, "--to", "adapters", "--out", str(out)])
    lines = done.output.split("\n")[:-1]
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(lines) < len(files)
    for line in lines:
        folder, _, count = line.partition("/ (")
        assert len([p for p in Path(folder).iterdir() if p.is_file()]) == int(count.split()[0])


def test_a_dry_run_fails_where_something_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = CliRunner().invoke(app, ["run", "demo", "--dry-run"])
    assert whole.exit_code == 0
    less = ["run", "demo", "--dry-run", "--set", "experiments.scaling.calibration=validation"]
    missing = CliRunner().invoke(app, less)
    assert "# missing here" in missing.output
    assert missing.exit_code == 1


@pytest.mark.parametrize("command", [["demo"], ["run", "demo"], ["run", "demo", "--dry-run"]])
def test_a_seed_below_zero_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*command, "--seed", "-1"])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith("--seed -1: key 'seeds.0': ")
    assert "expected a list" not in str(done.exception)
    assert "greater than or equal to 0" in str(done.exception)
    assert not any(tmp_path.iterdir())
