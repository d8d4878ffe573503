"""A run directory keeps its recipe, checks its sealed files and admits one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core import files
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import replace_file, sha256
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import directory
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold_run_lock


def build_recipe(**changes: Any) -> Recipe:
    content = {
        "name": "r",
        "data": {"task": "t"},
        "model": {"args": {"pretrained": "m"}},
        **changes,
    }
    return check_recipe(content, "test")


def test_rejects_recipe_with_another_name(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    with pytest.raises(UserError, match="not other; use another --run-dir"):
        RunDirectory.create_or_open(tmp_path / "run", build_recipe(name="other"))


def test_reports_recipe_changes_without_writing(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    assert not run.changes
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    changed = build_recipe(search={"k": 4}, training={"rank": 2}, statistics={"seed": 3})
    changes = RunDirectory.create_or_open(tmp_path / "run", changed).changes
    assert changes.search_changes == ("search.k 8 → 4",)
    assert [line.partition(" ")[0] for line in changes.selection_changes] == ["training.rank"]
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_records_the_day_a_stage_last_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = iter(["2026-11-20", "2026-11-21", "2026-11-22"])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls.fromisoformat(next(days))

    monkeypatch.setattr(directory, "datetime", Clock)
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    stage_days = []
    for table in ("first", None, "second"):
        with run.record_stage_time("search"):
            if table:
                (run.path / table).write_text(table)
                run.seal(table)
        stage_days.append(run.manifest()["stages"]["search"]["day"])
    # finding a finished stage does not change its day
    assert stage_days == ["2026-11-20", "2026-11-20", "2026-11-22"]


def test_conditions_seeds_and_executor_may_change(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    changed = build_recipe(conditions=["gapft"], seeds=[1], executor={"workers": 3})
    run = RunDirectory.create_or_open(tmp_path / "run", changed)
    assert run.recipe == changed
    assert RunDirectory.open(tmp_path / "run").recipe == build_recipe(), (
        "not before it is committed"
    )
    run.write_recipe()
    assert RunDirectory.open(tmp_path / "run").recipe == changed
    assert run.manifest()["recipe"] == changed.model_dump(mode="json")


def test_jobs_read_new_execution_settings_at_once(tmp_path: Path) -> None:
    """Jobs read the recipe on disk, and start before anything is selected and committed."""

    def serve(at: str, **changes: Any) -> Recipe:
        args = {"pretrained": "m", "base_url": f"http://{at}/v1/completions"}
        return build_recipe(model={"backend": "local-completions", "args": args}, **changes)

    RunDirectory.create_or_open(tmp_path / "run", serve("old"))
    new_recipe = serve("new", executor={"threads": 2}, conditions=["gapft"])
    run = RunDirectory.create_or_open(tmp_path / "run", new_recipe)
    assert RunDirectory.open(tmp_path / "run").recipe == serve("old")
    run.write_execution_settings()
    changed = serve("new", executor={"threads": 2})
    assert RunDirectory.open(tmp_path / "run").recipe == changed, "conditions wait for the commit"
    assert run.manifest()["recipe"] == changed.model_dump(mode="json"), (
        "as gapft verify compares them"
    )


def test_removes_empty_run(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    (run.path / "pool").mkdir()
    run.discard_if_empty()
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("file", ["pool/responses.parquet", "audit/other/problems.parquet"])
def test_keeps_run_with_unsealed_finished_table(tmp_path: Path, file: str) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    replace_file(run.path / file, lambda beside: beside.write_text("rows"))
    run.discard_if_empty()
    assert RunDirectory.create_or_open(run.path, build_recipe()).manifest() == run.manifest()
    assert (run.path / file).exists()


def test_removes_killed_run_without_responses(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    (run.path / "pool" / ".imported.partial").mkdir(parents=True)
    (run.path / "pool" / ".imported.partial" / "0.jsonl").write_text("half")
    (run.path / "pool" / ".problems.parquet.partial").write_text("half")
    run.discard_if_empty()
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("whole", [True, False])
def test_restarts_folder_killed_before_its_recipe(tmp_path: Path, whole: bool) -> None:
    folder = RunDirectory.create_or_open(tmp_path / "run", build_recipe()).path
    (folder / "recipe.yaml").unlink()
    if not whole:
        (folder / "manifest.json").unlink()
        (folder / ".manifest.json.partial").write_text("{")
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    assert run.manifest()["recipe"] == RunDirectory.open(run.path).recipe.model_dump(mode="json")


def test_rejects_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"has no recipe\.yaml"):
        RunDirectory.create_or_open(tmp_path, build_recipe())
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", '{"name": "a web page"}'),
        ("manifest.json", '{"gapft_harness": "0.1.0", "files": {"pool/responses.parquet": "0"}}'),
        ("manifest.json", "["),
        ("film.mkv.partial", "half"),
        ("log.jsonl", ""),
    ],
)
def test_rejects_folder_with_similarly_named_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=r"has no recipe\.yaml"):
        RunDirectory.create_or_open(tmp_path, build_recipe())
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {name: content}


def test_names_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        RunDirectory.open(tmp_path)


def test_rejects_changed_sealed_file(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    path = run.path / "pool" / "x.parquet"
    with pytest.raises(UserError, match="run the stage that writes it first"):
        run.sealed("pool/x.parquet")
    replace_file(path, lambda beside: beside.write_text("one"))
    run.seal("pool/x.parquet")
    assert run.sealed("pool/x.parquet") == path
    path.write_text("two")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        run.sealed("pool/x.parquet")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        run.seal("pool/x.parquet")


@pytest.fixture
def hashed_files(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record hashed files in order; treat files as old as soon as they are written."""
    paths_hashed: list[Path] = []

    def record_hash(path: Path) -> str:
        paths_hashed.append(path)
        return sha256(path)

    monkeypatch.setattr(files, "sha256", record_hash)
    monkeypatch.setattr(files, "RECENT_CHANGE_NS", -(10**18))
    return paths_hashed


def rewrite_in_place(path: Path) -> None:
    """Write other bytes of the same length and restore the modification time."""
    before = path.stat()
    path.write_bytes(bytes(255 - b for b in path.read_bytes()))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_rename(path: Path) -> None:
    other = path.with_name("other")
    shutil.copy2(path, other)
    rewrite_in_place(other)
    other.rename(path)


@pytest.mark.parametrize(
    "edit", [rewrite_in_place, replace_by_rename, lambda path: path.write_text("more than one")]
)
@pytest.mark.parametrize("file", ["pool/x.parquet", "adapters/a/x"])
def test_hashes_sealed_file_again_only_after_edits(
    tmp_path: Path, hashed_files: list[Path], edit: Callable[[Path], object], file: str
) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    path, sealed = run.path / file, file.removesuffix("/x")
    replace_file(path, lambda beside: beside.write_text("one"))
    run.seal(sealed)
    time.sleep(0.02)  # a tick of the file system's clock
    for _ in range(3):
        assert RunDirectory.open(run.path).sealed(sealed) == run.path / sealed
    assert hashed_files.count(run.path / sealed) == 1
    edit(path)
    for _ in range(2):
        with pytest.raises(UserError, match="was changed after it was sealed"):
            run.sealed(sealed)


def test_finds_files_added_to_sealed_folder(tmp_path: Path, hashed_files: list[Path]) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    replace_file(run.path / "adapters/a/x", lambda beside: beside.write_text("one"))
    run.seal("adapters/a")
    run.sealed("adapters/a")
    (run.path / "adapters/a/y").write_text("")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        run.sealed("adapters/a")


def test_hashes_recent_files_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two edits within one tick of the clock leave no trace."""
    monkeypatch.setattr(files, "sha256", lambda path: path.read_text())
    file = tmp_path / "x"
    for text in ("one", "two", "six"):
        file.write_text(text)
        assert files.sha256_cached(file) == text
    assert file.resolve() not in files._HASHED


def test_folder_hash_covers_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    before = sha256(tmp_path / "a")
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    renamed = sha256(tmp_path / "a")
    (tmp_path / "a" / "y").write_text("2")
    assert len({before, renamed, sha256(tmp_path / "a")}) == 3


def test_failed_write_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def write(beside: Path) -> None:
        beside.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(GapftError, match="cannot be written: No space left on device"):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_second_process_is_refused_and_names_first(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib\nfrom gapft_harness.run_directory.lock import hold_run_lock\n"
            "with hold_run_lock(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n"
            "    sys.stdin.read()",
            str(tmp_path / "run"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(UserError, match=f"in use by process {holder.pid}"),
        hold_run_lock(tmp_path / "run"),
    ):
        pass
    holder.kill()
    holder.wait()
    with hold_run_lock(tmp_path / "run"):
        pass


def test_damaged_manifest_is_named(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", build_recipe())
    (run.path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json: cannot be read"):
        run.manifest()
    (run.path / "manifest.json").write_text(json.dumps([]))
    with pytest.raises(UserError, match="expected a JSON object"):
        run.manifest()
