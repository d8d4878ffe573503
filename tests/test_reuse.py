"""Responses that the store keeps: moved, damaged and removed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.command import gapft
from tests.kit.recording_run import LettersTask, write_letters_task

SEARCH = {"k": 4, "chunk": 8}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path)


def read_requests(task: LettersTask, name: str) -> list[tuple[str, int]]:
    """Return the problems and indices requested from a run's sampler; empty if it never started."""
    if not (task.folder / f"{name}.log").exists():
        return []
    calls = [call for call in task.log(name) if "id" in call]
    return [(call["id"], index) for call in calls for index in call["indices"]]


def search(task: LettersTask, name: str, **keys: Any) -> RunDirectory:
    return task.run(name, **{"search": SEARCH, **keys})


def test_moved_folders_are_found_again(task: LettersTask, tmp_path: Path) -> None:
    search(task, "first")
    shutil.copytree(tmp_path, moved_folder := tmp_path.with_name(f"{tmp_path.name}-moved"))
    try:
        moved = LettersTask(moved_folder)
        search(moved, "second")
        assert read_requests(moved, "second") == []
    finally:
        shutil.rmtree(moved_folder)


@pytest.mark.parametrize(
    "pattern",
    [
        "generate_chunks/*/*/*.jsonl",
        "generate_chunks/*/*/made_from.json",
        "judge_chunks/*/*/*.jsonl",
    ],
)
def test_changed_part_of_a_search_is_never_used(
    task: LettersTask, tmp_path: Path, pattern: str
) -> None:
    search(task, "first")
    shutil.rmtree(tmp_path / ".store/search_split")  # the table, of which these files are parts
    path, *_ = sorted((tmp_path / ".store").glob(pattern))
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content.replace(b"1", b"2", 1))
    with pytest.raises(UserError, match=path.parent.name):
        search(task, "second")
    path.write_bytes(content)
    shutil.rmtree(next((tmp_path / ".store/generate_chunks").glob("*/*/*.jsonl")).parent)
    search(task, "second")
    assert len({problem for problem, _ in read_requests(task, "second")}) == 8, "one chunk"


def test_unused_results_are_listed_and_removed(task: LettersTask, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for number, temperature in enumerate((0.2, 0.9)):
        task.run(f"r{number}", at=f"runs/r{number}", search={**SEARCH, "temperature": temperature})
    assert gapft("store", runs).stdout.count("samples of pool") == 2
    shutil.rmtree(runs / "r1")
    listed = gapft("store", runs)
    assert "0.9" in listed.stdout
    done = gapft("store", runs, "--prune", "--yes")
    assert done.returncode == 0, done.stderr
    kept = list((runs / ".store/generate_chunks").glob("[!.]*"))
    assert len(kept) == 2, "greedy decodes and samples of r0"
    task.run("r2", at="runs/r2", search={**SEARCH, "temperature": 0.2})
    assert read_requests(task, "r2") == []
    task.run("r3", at="runs/r3", search={**SEARCH, "temperature": 0.9})
    assert {index for _, index in read_requests(task, "r3")} == set(range(4))
