"""Export of the evidence as a dataset with a card for the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import load_dataset
from huggingface_hub import DatasetCard

from gapft_harness.core.errors import UserError
from gapft_harness.exporting.kinds import ExportChoice, export
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from tests.recording_run import write_letters_task

KEYS: dict[str, Any] = {"search": {"k": 4}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of the letters task with states of pool and audit."""
    task = write_letters_task(tmp_path_factory.mktemp("letters"))
    return task.run("run", ["states"], ("pool", "audit"), **KEYS)


def test_dataset_holds_sealed_evidence(run: RunDirectory, tmp_path: Path) -> None:
    export(run, "dataset", ExportChoice(tmp_path / "out"))
    loaded = load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    tables = Run(run)
    assert [*loaded] == ["pool", "audit"]
    for split, rows in loaded.items():
        problems = tables.read("problems", split=split).to_pylist()
        states = tables.read("states", split=split).to_pylist()
        responses = tables.read("responses", split=split).to_pylist()
        assert len(rows) == len(problems) > 0
        flat = []
        for row, problem, state in zip(rows, problems, states, strict=True):
            assert {row["split"]} == {split}
            assert row["origin"] == "letters"
            for key in ("problem_id", "prompt", "gold"):
                assert row[key] == problem[key]
            for key in ("state", "samples", "passing_samples", "first_success", "kept_index"):
                assert row[key] == state[key]
            flat += [(row["problem_id"], response) for response in row["responses"]]
        for (problem_id, response), sealed in zip(flat, responses, strict=True):
            assert problem_id == sealed["problem_id"]
            assert response["verdict"] == sealed["status"]
            assert response["attempts"] == []
            for key in ("index", "text", "reason", "answer", "finish_reason"):
                assert response[key] == sealed[key]
    assert {row["state"] for row in loaded["pool"]} == {"S"}
    assert json.loads(loaded["pool"][0]["gold"]) in "aeiou"


def test_card_is_valid_for_hub(run: RunDirectory, tmp_path: Path) -> None:
    run.update_manifest(lambda manifest: manifest["warnings"].append("no verdict is its own"))
    export(run, "dataset", ExportChoice(tmp_path / "out"))
    text = (tmp_path / "out" / "README.md").read_text()
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    files = {entry["split"]: entry["path"] for entry in card.data.configs[0]["data_files"]}
    assert files == {"pool": "data/pool.parquet", "audit": "data/audit.parquet"}
    assert yaml.safe_load(text.split("---\n")[1])["pretty_name"] == "Evidence of run"
    for split in files:
        for table in (layout.problems_path, layout.states_path, layout.responses_path):
            assert f"| {table(split)} | {run.manifest()['files'][table(split)]} |" in text
    assert "> **Warning.** no verdict is its own" in text
    assert str(run.path) not in text


def test_rejects_run_without_states(tmp_path: Path) -> None:
    run = write_letters_task(tmp_path).run("run", [], ("pool", "audit"), **KEYS)
    with pytest.raises(UserError, match=r"pool/states.parquet: does not exist yet"):
        export(run, "dataset", ExportChoice(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
