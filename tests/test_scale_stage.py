"""The scale stage refuses splits sealed from two versions of the data before it decodes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.recording_run import LettersTask, write_letters_task

TAKEN = 6


def search(task: LettersTask, split: str) -> RunDirectory:
    return task.run(
        "r",
        splits=(split,),  # type: ignore[arg-type]
        conditions=["gapft"],
        budget={"n": 4},
        search={"k": 2},
        experiments={"scaling": {"calibration": TAKEN}},
    )


@pytest.mark.parametrize("shared", ["pool", "audit"])
def test_rejects_newer_calibration_data(tmp_path: Path, shared: str) -> None:
    """Each search has disjoint data, but the newer calibration repeats a sealed split."""
    task = write_letters_task(tmp_path, pool=24, audit=8)
    search(task, "pool")
    run = search(task, "audit")
    if shared == "pool":
        task.write("pool", read_numbers(run, "pool"))
    else:
        (tmp_path / "tasks/audit.jsonl").rename(tmp_path / "tasks/pool.jsonl")
        task.write("audit", range(50, 58))
    # as if each had been searched on another machine
    run.update_manifest(lambda manifest: manifest["rests_on"]["data"].clear())
    run.update_manifest(lambda manifest: manifest["rests_on"]["files"].clear())
    with pytest.raises(UserError, match=rf"calibration problems are also in the {shared}, first: "):
        search(task, "calibration")
    assert "calibration/problems.parquet" not in run.manifest()["files"]


def read_numbers(run: RunDirectory, split: str) -> list[int]:
    """Return the record numbers of a sealed split."""
    column = pq.read_table(run.path / split / "problems.parquet")["problem_id"]
    return [int(name.partition("-")[0].removeprefix(split)) for name in column.to_pylist()]
