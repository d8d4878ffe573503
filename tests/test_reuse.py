"""Which responses are reused from the store and which are generated again after a change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.hooks.manager import _load_cached
from gapft_harness.run_directory.directory import RunDirectory
from tests.kit.command import gapft
from tests.kit.patience import PATIENCE_S
from tests.kit.recording_run import LettersTask, write_letters_task

SEARCH = {"k": 4, "chunk": 8}
GREEDY_AND_SAMPLES = {"greedy", "samples"}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path)


def read_requests(task: LettersTask, name: str) -> list[tuple[str, int]]:
    """Return the problems and indices requested from a run's sampler; empty if it never started."""
    if not (task.folder / f"{name}.log").exists():
        return []
    calls = [call for call in task.log(name) if "id" in call]
    return [(call["id"], index) for call in calls for index in call["indices"]]


def read_rows(run: RunDirectory, split: str = "pool") -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = pq.read_table(
        run.path / f"{split}/responses.parquet"
    ).to_pylist()
    return records


def search(task: LettersTask, name: str, **keys: Any) -> RunDirectory:
    return task.run(name, **{"search": SEARCH, **keys})


def test_second_run_on_same_inputs_generates_nothing(task: LettersTask) -> None:
    first = search(task, "first")
    second = search(task, "second", seeds=[17], conditions=["gapft"])
    assert read_requests(task, "second") == []
    assert read_rows(second) == read_rows(first)
    assert first.manifest()["reused"] == {"pool": {}}
    assert second.manifest()["reused"] == {"pool": {str(first.path.resolve()): 24 * 5}}
    assert second.manifest()["stored"] == first.manifest()["stored"]


@pytest.mark.parametrize(
    ("before", "after", "new"), [(8, 16, 8), (8, 11, 3), (4, 8, 8), (16, 8, 0)]
)
def test_more_samples_generate_only_new_blocks(
    task: LettersTask, tmp_path: Path, before: int, after: int, new: int
) -> None:
    search(task, "few", search={**SEARCH, "k": before})
    more = search(task, "more", search={**SEARCH, "k": after})
    indices = [index for _, index in read_requests(task, "more")]
    assert sorted(set(indices)) == list(range(after - new, after))
    assert len(indices) == 24 * new
    (tmp_path / "fresh").mkdir()
    fresh = search(write_letters_task(tmp_path / "fresh"), "more", search={**SEARCH, "k": after})
    assert read_rows(more) == read_rows(fresh)


def test_larger_pool_generates_only_new_chunks(task: LettersTask) -> None:
    search(task, "few", data={"pool_limit": 16})
    search(task, "more", data={"pool_limit": 24})
    assert len({problem for problem, _ in read_requests(task, "more")}) == 8


Change = Callable[[LettersTask], dict[str, Any]]


def model_section(**arguments: Any) -> dict[str, Any]:
    return {"model": {"args": arguments}}


def edit_task_file(file: str, old: str, new: str) -> Change:
    """Return a change that edits a task file."""

    def change(task: LettersTask) -> dict[str, Any]:
        path = task.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        _load_cached.cache_clear()  # as in a new process
        return {}

    return change


#: The change for a second run, and the part of the pool that it then generates.
CHANGES: list[tuple[str, dict[str, Any] | Change, set[str]]] = [
    ("nothing", {}, set()),
    ("executor", {"executor": {"workers": 3, "threads": 2}}, set()),
    ("seeds and conditions", {"seeds": [1, 2], "conditions": ["uniform"]}, set()),
    ("training", {"training": {"rank": 4, "learning_rate": 1e-3}}, set()),
    ("budget", {"budget": {"n": 3}}, set()),
    ("statistics", {"statistics": {"seed": 5}}, set()),
    ("response rule", {"evidence": {"keep": "first"}}, set()),
    ("audit", {"data": {"audit_limit": 5}}, set()),
    ("verifier", {"verifier": {"params": {"word": "so"}}}, set()),
    ("log", {"model": {"args": {"log": "elsewhere.log"}}}, set()),
    ("temperature", {"search": {**SEARCH, "temperature": 0.2}}, {"samples"}),
    ("top_p", {"search": {**SEARCH, "top_p": 0.5}}, {"samples"}),
    ("top_k", {"search": {**SEARCH, "top_k": 7}}, {"samples"}),
    ("seed", {"search": {**SEARCH, "seed": 1}}, {"samples"}),
    ("max_gen_toks", {"search": {**SEARCH, "max_gen_toks": 5}}, GREEDY_AND_SAMPLES),
    ("chunk", {"search": {**SEARCH, "chunk": 5}}, GREEDY_AND_SAMPLES),
    ("a model argument", model_section(alike=True), GREEDY_AND_SAMPLES),
    ("a model's name", model_section(pretrained="another"), GREEDY_AND_SAMPLES),
    ("start tokens", {"model": {"start_tokens": 1}}, GREEDY_AND_SAMPLES),
    ("chat template", {"model": {"chat_template": True}}, GREEDY_AND_SAMPLES),
    ("system turn", {"model": {"system_instruction": "Hm."}}, GREEDY_AND_SAMPLES),
    (
        "prompt",
        edit_task_file("tasks/letters.yaml", "{{question}} ", "{{question}}  "),
        GREEDY_AND_SAMPLES,
    ),
    (
        "stop strings",
        edit_task_file("tasks/letters.yaml", "toks: 12", "toks: 12, until: [z]"),
        GREEDY_AND_SAMPLES,
    ),
    (
        "the sampler's file",
        edit_task_file("plugin.py", "so it is", "so it was"),
        GREEDY_AND_SAMPLES,
    ),
]


@pytest.mark.parametrize(("change", "new"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_generates_exactly_what_depends_on_a_change(
    task: LettersTask,
    change: dict[str, Any] | Change,
    new: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(task.folder)
    search(task, "first")
    keys = change(task) if callable(change) else change
    again = search(task, "second", **keys)
    name = "elsewhere" if "log" in keys.get("model", {}).get("args", {}) else "second"
    generated = {
        "greedy" if index == GREEDY else "samples" for _, index in read_requests(task, name)
    }
    assert generated == new
    assert len(read_rows(again)) == 24 * 5


def test_model_files_are_compared_by_content(task: LettersTask, tmp_path: Path) -> None:
    """A moved model is the same model; another tokenizer makes it a different one."""
    from tests.kit.tiny_models import write_byte_llama

    first = write_byte_llama(tmp_path / "one")
    shutil.copytree(first, tmp_path / "copy")
    search(task, "first", **model_section(pretrained=str(first)))
    search(task, "second", **model_section(pretrained=str(tmp_path / "copy")))
    assert read_requests(task, "second") == []
    file = tmp_path / "copy" / "tokenizer_config.json"
    file.write_text(file.read_text().replace("}", " }"))
    search(task, "third", **model_section(pretrained=str(tmp_path / "copy")))
    assert {index for _, index in read_requests(task, "third")} == {GREEDY, *range(4)}


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
    return sorted((folder / ".store/generate").glob("*/*.jsonl"))


def change_text(path: Path) -> None:
    path.write_text(path.read_text().replace("so it is", "so it be").replace('"?"', '"!"'))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def copy_other_chunk(path: Path) -> None:
    """Replace the file with another chunk's responses."""
    other = next(
        file
        for file in find_stored_files(path.parents[3])
        if file.parent == path.parent and file != path
    )
    path.write_bytes(other.read_bytes())


def change_key(path: Path) -> None:
    path.write_text(path.read_text().replace('"chunk": ', '"chunk": 1'))


def change_verifier(path: Path) -> None:
    path.write_text(path.read_text().replace('"contains"', '"nothing"'))


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("generate/*/*.jsonl", change_text),
        ("generate/*/*.jsonl", truncate),
        ("generate/*/*.jsonl", copy_other_chunk),
        ("judge/*/*.jsonl", truncate),
        ("generate/*/made_from.json", change_key),
        ("judge/*/made_from.json", change_verifier),
    ],
)
def test_changed_stored_file_is_never_used(
    task: LettersTask, tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    search(task, "first")
    for path in sorted((tmp_path / ".store").glob(pattern)):
        content = path.read_bytes()
        path.chmod(0o644)
        damage(path)
        assert path.read_bytes() != content
        with pytest.raises(UserError, match=path.name):
            search(task, "second")
        path.write_bytes(content)
    path = find_stored_files(tmp_path)[0]
    path.unlink()
    search(task, "second")
    assert len({problem for problem, _ in read_requests(task, "second")}) == 8, "one chunk"


def test_stored_files_are_read_only(task: LettersTask, tmp_path: Path) -> None:
    search(task, "first")
    assert {path.stat().st_mode & 0o777 for path in find_stored_files(tmp_path)} == {0o444}
    assert not [path for path in (tmp_path / ".store").rglob("*") if "partial" in path.name]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_number_of_workers_changes_no_response(tmp_path: Path, workers: int) -> None:
    (tmp_path / "one").mkdir()
    alone = write_letters_task(tmp_path / "one").run("r", splits=("pool", "audit"), search=SEARCH)
    (tmp_path / "many").mkdir()
    task = write_letters_task(tmp_path / "many")
    many = task.run("r", splits=("pool", "audit"), search=SEARCH, executor={"workers": workers})
    for split in ("pool", "audit"):
        assert read_rows(many, split) == read_rows(alone, split)
    requests = read_requests(task, "r")
    assert len(requests) == len(set(requests)), "nothing is generated twice"


def run_commands(folder: Path, names: list[str]) -> Iterator[subprocess.Popen[str]]:
    for name in names:
        yield subprocess.Popen(
            [
                *(sys.executable, "-m", "gapft_harness.cli.main", "run", "demo"),
                *("--run-dir", name, "--only", "search", "--set", "data.pool_limit=48"),
                *("--set", "data.audit_limit=16", "--set", "search.chunk=4"),
            ],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def test_concurrent_commands_share_a_search(tmp_path: Path) -> None:
    running = list(run_commands(tmp_path, ["a", "b"]))
    outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    runs = [RunDirectory.open(tmp_path / name) for name in "ab"]
    for split in ("pool", "audit"):
        assert read_rows(runs[0], split) == read_rows(runs[1], split)
        own = [
            len(read_rows(run, split)) - sum(run.manifest()["reused"][split].values())
            for run in runs
        ]
        assert sum(own) == len(read_rows(runs[0], split)), (
            "each response was generated for one of them"
        )


def test_environment_variable_moves_the_store(tmp_path: Path) -> None:
    options = ("--only", "search", "--split", "pool", "--set", "data.pool_limit=8")
    place = tmp_path / "kept"
    done = gapft(
        "run", "demo", "--run-dir", "a", *options, cwd=tmp_path, env={"GAPFT_STORE": str(place)}
    )
    assert done.returncode == 0, done.stderr
    assert list(place.glob("generate/*/*.jsonl"))
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
    assert len(list((runs / ".store/generate").glob("*"))) == 2, "greedy decodes and samples of r0"
    task.run("r2", at="runs/r2", search={**SEARCH, "temperature": 0.2})
    assert read_requests(task, "r2") == []
    task.run("r3", at="runs/r3", search={**SEARCH, "temperature": 0.9})
    assert {index for _, index in read_requests(task, "r3")} == set(range(4))


def test_weights_known_to_the_sampler_are_keyed(task: LettersTask) -> None:
    search(task, "first")
    (task.folder / "weights").write_text("others")
    search(task, "second")
    assert {index for _, index in read_requests(task, "second")} == {GREEDY, *range(4)}
