"""Claims: one process at a time runs a job, and a dead process frees its claim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO, cast

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.executors.jobs import claim_job

HOLDER = """
import sys, time
from gapft_harness.executors.jobs import claim_job
with claim_job("m:search", {"run_path": sys.argv[1], "split": "pool", "plugin_files": ["x"]}):
    print("held", flush=True)
    time.sleep(600)
"""


def claim_once(run: Path, split: str = "pool", patience_s: float = 0.0) -> None:
    with claim_job("m:search", {"run_path": str(run), "split": split}, patience_s):
        pass


def test_live_process_holds_job_and_dead_one_frees_it(
    tmp_path: Path,
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert cast(IO[str], holder.stdout).readline() == "held\n"
        with pytest.raises(GapftError, match="earlier command"):
            claim_once(tmp_path)
        claim_once(tmp_path, split="audit")
    finally:
        holder.kill()
        holder.wait()
    claim_once(tmp_path)


def test_rejects_run_directory_missing_on_worker(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not found on .*under the same path"):
        claim_once(tmp_path / "elsewhere")
