"""Which responses are reused from the store and which are generated again after a change."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks import manager
from gapft_harness.hooks.protocols import Job, Progress
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.search.stage import run_search_stage
from tests.kit.command import gapft
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task

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


def find_stored_files(folder: Path) -> list[Path]:
    return sorted((folder / ".store/generate_chunks").glob("*/*/*.jsonl"))


def change_text(path: Path) -> None:
    path.write_text(path.read_text().replace("so it is", "so it be").replace('"?"', '"!"'))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def copy_other_chunk(path: Path) -> None:
    """Replace the file with that of another chunk."""
    other = next(p for p in path.parents[1].glob(f"*/{path.name}") if p != path)
    path.write_bytes(other.read_bytes())


def change_key(path: Path) -> None:
    path.write_text(path.read_text().replace('"chunk": ', '"chunk": 1'))


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("generate_chunks/*/*/*.jsonl", change_text),
        ("generate_chunks/*/*/*.jsonl", copy_other_chunk),
        ("judge_chunks/*/*/*.jsonl", truncate),
        ("generate_chunks/*/*/made_from.json", change_key),
    ],
)
def test_changed_stored_file_is_never_used(
    task: LettersTask, tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    search(task, "first")
    shutil.rmtree(tmp_path / ".store/search_split")  # the table, of which these files are parts
    for path in sorted((tmp_path / ".store").glob(pattern)):
        content = path.read_bytes()
        path.chmod(0o644)
        damage(path)
        assert path.read_bytes() != content
        with pytest.raises(UserError, match=path.parent.name):
            search(task, "second")
        path.write_bytes(content)
    path = find_stored_files(tmp_path)[0]
    shutil.rmtree(path.parent)
    search(task, "second")
    assert len({problem for problem, _ in read_requests(task, "second")}) == 8, "one chunk"


def test_stored_files_are_read_only(task: LettersTask, tmp_path: Path) -> None:
    search(task, "first")
    assert {path.stat().st_mode & 0o777 for path in find_stored_files(tmp_path)} == {0o444}
    assert not [path for path in (tmp_path / ".store").rglob("*") if "partial" in path.name]


@pytest.mark.thorough
def test_environment_variable_moves_the_store(tmp_path: Path) -> None:
    options = ("--only", "search", "--split", "pool", "--set", "data.pool_limit=8")
    place = tmp_path / "kept"
    done = gapft(
        "run", "demo", "--run-dir", "a", *options, cwd=tmp_path, env={"GAPFT_STORE": str(place)}
    )
    assert done.returncode == 0, done.stderr
    assert list(place.glob("generate_chunks/*/*/*.jsonl"))
    assert not (tmp_path / ".store").exists()
    inside = str(tmp_path / "b" / "store")
    done = gapft(
        "run", "demo", "--run-dir", "b", *options, cwd=tmp_path, env={"GAPFT_STORE": inside}
    )
    assert done.returncode == 2
    assert "GAPFT_STORE" in done.stderr


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


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [("plugin.py", "g in r", "g not in r"), ("tasks/letters.yaml", 'word: ""', 'word: "!!!!!"')],
)
def test_verifier_edited_during_a_command_judges_nothing(
    task: LettersTask, file: str, before: str, after: str
) -> None:
    """A worker process loads plugins and task when its job begins."""

    class EditingExecutor(InProcessExecutor):
        def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
            if jobs[0].label.startswith("search"):
                path = task.folder / file
                path.write_text(path.read_text().replace(before, after))
                manager._load_cached.cache_clear()  # as in a new process
            return super().run(jobs, progress)

    context = task.context(search(task, "first"), ("pool", "audit"))
    with pytest.raises(UserError, match="run the same command again"):
        run_search_stage(replace(context, executor=EditingExecutor()))
    assert not context.run.has("audit")
