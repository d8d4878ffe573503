"""A run that scales its adapters with the real command: killed during scaling, and verified."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.patience import PATIENCE_S
from tests.kit.running_commands import find_stored_files, find_workers, kill_command, read_result

OPTIONS = (
    "--condition", "gapft", "--seed", "13", "--set", "experiments.scaling.calibration=40",
    "--set", "search.chunk=2",
    "--set", "experiments.scaling.tolerance=0.9", "--set", "statistics.replicates=20",
    "--set", "executor.workers=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scaled_folder = tmp_path_factory.mktemp("scaled-run")
    command = prepare_letters_run(scaled_folder)
    succeed(*command, "whole", *OPTIONS, cwd=scaled_folder)
    return scaled_folder


def wait_until(holds: Callable[[], bool], command: subprocess.Popen[bytes]) -> None:
    """Wait until a running command makes a condition true."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert command.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_resumes_after_kill_during_scaling(folder: Path) -> None:
    command = ["run", "recipe.yaml", "--include-path", "tasks", "--plugin", "plugin.py"]
    arguments = [*command, "--run-dir", "killed", *OPTIONS]
    env = {"GAPFT_STORE": str(folder / "killed.store")}  # the other run's has all responses
    started = subprocess.Popen(
        [sys.executable, "-m", "gapft_harness.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    earlier = folder / "killed/decisions/gapft-seed13.calibration-0.25.parquet"
    wait_until(earlier.exists, started)
    workers = find_workers(started)
    stored_before = set(find_stored_files(folder / "killed.store", arm=True))
    wait_until(
        lambda: set(find_stored_files(folder / "killed.store", arm=True)) > stored_before, started
    )
    assert kill_command(started, workers), "it ended before it was killed"
    assert not (folder / "killed/scaled/gapft-seed13").exists()
    succeed(*arguments, cwd=folder, env=env)
    assert read_result(folder / "killed") == read_result(folder / "whole")
    assert [p.name for p in (folder / "killed/scaled").iterdir()] == ["gapft-seed13"]
