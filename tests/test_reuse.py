"""Work that the store keeps: moved, damaged and removed; verdicts that it does not keep."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_searches
from gapft_harness.stages import descriptions
from tests.kit.command import call
from tests.kit.plugins import write_plugin
from tests.kit.recording_run import LettersTask, write_letters_task

SEARCH = {"k": 4, "chunk": 8}
POOL = 24


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=POOL)


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
    assert call("store", runs).stdout.count("samples of pool") == 2
    shutil.rmtree(runs / "r1")
    listed = call("store", runs)
    assert "0.9" in listed.stdout
    done = call("store", runs, "--prune", "--yes")
    assert done.returncode == 0, done.stderr
    kept = list((runs / ".store/generate_chunks").glob("[!.]*"))
    assert len(kept) == 2, "greedy decodes and samples of r0"
    task.run("r2", at="runs/r2", search={**SEARCH, "temperature": 0.2})
    assert read_requests(task, "r2") == []
    task.run("r3", at="runs/r3", search={**SEARCH, "temperature": 0.9})
    assert {index for _, index in read_requests(task, "r3")} == set(range(4))


#: Responses without an answer time out while the file ``busy`` exists.
_VERIFIER = """
import pathlib

HERE = pathlib.Path(__file__).parent


class Busy:
    def verify(self, responses, golds):
        with (HERE / "judged.log").open("a") as file:
            file.writelines(text + "\\n" for text in responses)
        is_busy = (HERE / "busy").exists()
        return [
            Verdict("pass") if gold in text
            else Verdict("timeout" if is_busy else "fail", "no " + gold)
            for text, gold in zip(responses, golds, strict=True)
        ]
"""


def take_judged(folder: Path) -> set[str]:
    """Return the texts that were judged since the last call."""
    log = folder / "judged.log"
    texts = set(log.read_text().splitlines()) if log.exists() else set()
    log.unlink(missing_ok=True)
    return texts


def test_timeouts_count_only_in_their_run(task: LettersTask, tmp_path: Path) -> None:
    def count_verdicts(name: str) -> Any:
        return read_searches(search(task, name, verifier={"name": "busy"}))["pool"]["verdicts"]

    write_plugin(tmp_path / "verifier.py", _VERIFIER, verifiers=['"busy", Busy'])
    (tmp_path / "busy").touch()
    counts = count_verdicts("first")
    assert counts["timeout"] == 2 * POOL, "the greedy response and sample 2 are wrong"
    take_judged(tmp_path)
    (tmp_path / "busy").unlink()
    assert count_verdicts("first") == counts, "the run keeps its own verdicts"
    assert take_judged(tmp_path) == set()
    parts = [path.read_text() for path in tmp_path.glob(".store/judge_chunks/*/*/*.jsonl")]
    assert parts
    assert not [text for text in parts if "timeout" in text]
    assert count_verdicts("second") == {"pass": 3 * POOL, "fail": 2 * POOL}
    assert take_judged(tmp_path) == {"?"}, "only these are judged again"


def test_key_has_the_patch_version_of_a_judging_library(monkeypatch: pytest.MonkeyPatch) -> None:
    judge: Any = SimpleNamespace(describe=dict)
    monkeypatch.setattr(descriptions, "find_version", lambda name: "0.8.1")
    assert descriptions.describe_judging_machine(judge)["libraries"]["math-verify"] == "0.8.1"
