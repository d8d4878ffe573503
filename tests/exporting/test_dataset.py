"""Export of all responses as a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from gapft_harness.exporting.kinds import export
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.recording_run import write_letters_task

KEYS: dict[str, Any] = {"search": {"k": 4}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of the letters task with states of pool and audit."""
    task = write_letters_task(tmp_path_factory.mktemp("letters"))
    return task.run("run", ["states"], ("pool", "audit"), **KEYS)


def test_dataset_holds_recorded_responses(run: RunDirectory, tmp_path: Path) -> None:
    files = export(run, "dataset", tmp_path / "out")
    assert files == [tmp_path / "out" / f"{split}.parquet" for split in ("pool", "audit")]
    tables = Run(run)
    for file in files:
        rows = load_dataset(
            "parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache")
        )
        problems, states = (
            {row["problem_id"]: row for row in tables.read(name, split=file.stem).to_pylist()}
            for name in ("problems", "states")
        )
        responses = tables.read("responses", split=file.stem).to_pylist()
        for row, recorded in zip(rows, responses, strict=True):
            problem, state = problems[row["problem_id"]], states[row["problem_id"]]
            assert [row[key] for key in ("prompt", "gold")] == [problem["prompt"], problem["gold"]]
            assert row["state"] == state["state"]
            assert row["solve_rate"] == state["passing_samples"] / 4
            assert row["verdict"] == recorded["status"]
            for key in ("problem_id", "index", "text", "reason", "answer", "finish_reason"):
                assert row[key] == recorded[key]
        assert json.loads(rows[0]["gold"]) in "aeiou"
