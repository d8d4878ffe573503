"""Questions and errors before a command changes or starts a run."""

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
from tests.kit.command import succeed

SMALL = (
    *("--limit", "60", "--condition", "gapft", "--condition", "uniform"),
    *("--set", "search.k=2", "--set", "training.repetitions=1"),
    *("--set", "statistics.replicates=20"),
)


def read_files(run: Path) -> dict[Path, bytes]:
    """Return the content of a run's files, without its lock."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "run.lock"]
    return {path: path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run, ``r``, of one seed."""
    directory = tmp_path_factory.mktemp("finished")
    succeed("run", "demo", "--run-dir", "r", *SMALL, "--seed", 13, cwd=directory)
    return directory


@pytest.mark.thorough
def test_warns_before_headline_changes(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "r", tmp_path / "r")
    again = succeed("run", "demo", "--run-dir", "r", *SMALL, "--seed", 13, cwd=tmp_path)
    assert "warning" not in again.stderr
    done = succeed("run", "demo", "--run-dir", "r", *SMALL, "--seed", 14, cwd=tmp_path)
    message = " ".join(done.stderr.split())
    assert message.index("under seeds 13, 14") < message.index("✓ train")


@pytest.mark.thorough
def test_asks_on_terminal_before_change(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "r", tmp_path / "r")
    files_before = read_files(tmp_path / "r")
    main, side = pty.openpty()
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", "demo"]
    command += ["--run-dir", "r", *SMALL]
    with subprocess.Popen(
        [*command, "--seed", "14"], cwd=tmp_path, stdin=side, stdout=side, stderr=side
    ) as process:
        os.close(side)
        os.write(main, b"n\n")
        output = b""
        while True:
            try:
                output += (part := os.read(main, 4096))
            except OSError:  # the command has ended
                break
            if not part:
                break
    os.close(main)
    assert process.returncode == 2, output.decode()
    assert read_files(tmp_path / "r") == files_before


def test_dry_run_fails_if_inputs_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = CliRunner().invoke(app, ["run", "demo", "--dry-run"])
    assert whole.exit_code == 0
    less = ["run", "demo", "--dry-run", "--set", "experiments.scaling.calibration=validation"]
    missing = CliRunner().invoke(app, less)
    assert "# missing here" in missing.output
    assert missing.exit_code == 1
