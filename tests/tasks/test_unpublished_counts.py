"""Data that differ from the paper's: warnings in output, records and report."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings
from tests.kit.command import succeed

WARNING = (
    "gapft_logiqa {}: counts differ from the paper: found {}; expected {}; these are not the "
    "paper's data, so the run's figures cannot be compared with the paper's; docs/tasks.md lists "
    "the files to use"
)
POOL = WARNING.format("pool", "dropped from the pool 1", "dropped from the pool 211")
AUDIT = WARNING.format("audit", "audit 2", "audit 1,367")


@pytest.mark.thorough
@pytest.mark.parametrize("workers", ["1", "4"])
def test_run_on_other_files_warns_once_per_split(data: Path, tmp_path: Path, workers: str) -> None:
    done = succeed(
        "run", "--task", "gapft_logiqa", "--condition", "gapft", "--run-dir", "run",
        "--set", "model.backend=dummy", "--set", f"executor.workers={workers}",
        "--model-args", "pretrained=none",
        cwd=tmp_path, env={"GAPFT_DATA_DIR": str(data)},
    )  # fmt: skip
    output = " ".join((done.stdout + done.stderr).split())
    warnings = list_warnings(RunDirectory.open(tmp_path / "run"))
    report = " ".join((tmp_path / "run/report/index.md").read_text("utf-8").split())
    for sentence in (POOL, AUDIT):
        assert f"warning: {sentence}" in output
        assert warnings.count(sentence) == 1
        assert report.replace("\\", "").count(sentence) == 1
    succeed("verify", "run", cwd=tmp_path, env={"GAPFT_DATA_DIR": str(data)})
