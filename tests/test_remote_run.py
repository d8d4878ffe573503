"""A run at a URL: sealed files are there after each stage, and another machine goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from gapft_harness.errors import GapftError, UserError
from gapft_harness.pipeline import run_stages
from gapft_harness.remote_run import Mirror, placed, working_copy
from gapft_harness.run_directory import RunDirectory
from tests.command import gapft, succeed
from tests.recording_run import Letters, letters

URL = "memory://bucket/runs/letters"


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Letters]:
    monkeypatch.setenv("GAPFT_WORK_DIR", str(tmp_path / "work"))
    yield letters(tmp_path)
    fsspec.filesystem("memory").store.clear()


def searched(task: Letters) -> RunDirectory:
    return task.run("r", splits=("pool", "audit"), search={"k": 4})


def there() -> set[str]:
    fs = fsspec.filesystem("memory")
    root = "/bucket/runs/letters/"
    return {path.removeprefix(root) for path in fs.find(root)}


def test_sealed_files_go_there_and_come_back_on_another_machine(task: Letters) -> None:
    run = searched(task)
    (run.path / "pool" / "responses.jsonl").write_text("a journal")
    (run.path / "adapters" / "a").mkdir(parents=True)
    (run.path / "adapters" / "a" / "x.json").write_text("{}")
    (run.path / "adapters" / "a" / "deep").mkdir()
    (run.path / "adapters" / "a" / "deep" / "y").write_text("y")
    run.seal("adapters/a")
    Mirror(URL, run.path).push()
    tables = {f"{s}/{f}.parquet" for s in ("pool", "audit") for f in ("problems", "responses")}
    assert there() == {*tables, "adapters/a/x.json", "adapters/a/deep/y"} | {
        "recipe.yaml",
        "manifest.json",
    }
    with placed(URL) as (folder, mirror):
        assert mirror is not None
        assert folder == working_copy(URL)
        copy = RunDirectory.open(folder)
        assert copy.manifest() == run.manifest()
        for relative in copy.manifest()["files"]:
            copy.sealed(relative)
        run_stages(task.context(copy), ["search", "states"], lambda stage: None, mirror.push)
    assert {"pool/states.parquet", "audit/states.parquet"} < there()
    Mirror(URL, run.path).pull()
    assert run.manifest() == copy.manifest(), "the first machine catches up"
    run.sealed("pool/states.parquet")


def test_only_what_is_new_is_copied(task: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    run = searched(task)
    mirror = Mirror(URL, run.path)
    mirror.push()
    run_stages(task.context(run), ["states"], lambda stage: None)
    copied: list[str] = []
    put = Mirror._put
    monkeypatch.setattr(
        Mirror, "_put", lambda self, relative: (copied.append(relative), put(self, relative))[1]
    )
    mirror.push()
    assert sorted(copied) == [
        "audit/states.parquet", "manifest.json", "pool/states.parquet", "recipe.yaml",
    ]  # fmt: skip


def test_a_copy_that_was_cut_short_is_finished_and_the_manifest_goes_last(
    task: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = searched(task)
    mirror = Mirror(URL, run.path)
    put = mirror._fs.put_file
    calls = []

    def fails_at_the_third(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise ConnectionResetError("lost")
        put(source, target)

    monkeypatch.setattr(mirror._fs, "put_file", fails_at_the_third)
    with pytest.raises(GapftError, match=r"cannot be written: .*lost; the working copy .*r has"):
        mirror.push()
    assert "manifest.json" not in there()
    assert len(there()) == 2
    monkeypatch.undo()
    mirror.push()
    assert (
        json.loads(fsspec.filesystem("memory").cat_file("/bucket/runs/letters/manifest.json"))[
            "files"
        ]
        == run.manifest()["files"]
    )


def test_a_damaged_file_at_the_url_is_refused(task: Letters, tmp_path: Path) -> None:
    Mirror(URL, searched(task).path).push()
    fsspec.filesystem("memory").pipe_file("/bucket/runs/letters/pool/problems.parquet", b"x")
    with pytest.raises(UserError, match=r"letters/pool/problems\.parquet: was changed after"):
        Mirror(URL, tmp_path / "copy").pull()
    assert not (tmp_path / "copy" / "manifest.json").exists(), "so the next command looks again"


def test_two_machines_that_both_got_further_are_told(task: Letters) -> None:
    run = searched(task)
    Mirror(URL, run.path).push()
    other = task.folder / "other"
    Mirror(URL, other).pull()
    for one in (run.path, other):
        (one / "selections").mkdir()
        (one / "selections" / f"{one.name}.parquet").write_text(one.name)
        RunDirectory.open(one).seal(f"selections/{one.name}.parquet")
    Mirror(URL, run.path).push()
    with pytest.raises(UserError, match=r"differs from its working copy .*other in selections/"):
        Mirror(URL, other).pull()


def test_what_is_no_url_is_a_folder(tmp_path: Path) -> None:
    with placed(str(tmp_path)) as (folder, mirror):
        assert (folder, mirror) == (tmp_path, None)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonesuch://bucket/run", "cannot be opened: ValueError: Protocol not known: nonesuch"),
        ("http://127.0.0.1:9/run", "cannot be written: ClientConnectorError: Cannot connect"),
        ("file:///proc/none/run", "cannot be written: "),
    ],
)
def test_a_url_that_cannot_be_written_is_refused_before_anything_starts(
    tmp_path: Path, url: str, said: str
) -> None:
    done = gapft("demo", "--run-dir", url, env={"GAPFT_WORK_DIR": str(tmp_path / "work")})
    assert done.returncode == 2
    assert done.stderr.startswith(f"gapft: run directory {url}: {said}")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "work").exists()


def test_the_command_works_at_a_url_and_goes_on_on_another_machine(tmp_path: Path) -> None:
    task = letters(tmp_path)
    recipe = searched(task).path / "recipe.yaml"
    url = f"file://{tmp_path}/store/run"
    options = ["--plugin", task.plugins[0]]
    search = ["search", url, "--recipe", recipe, "--include-path", tmp_path / "tasks", *options]
    first = {"GAPFT_WORK_DIR": str(tmp_path / "first")}
    succeed(*search, "--split", "pool", "--shard", "1/1", env=first)
    assert (tmp_path / "store/run/pool/shards/1-of-1/responses.parquet").exists()
    shutil.rmtree(tmp_path / "first")
    second = {"GAPFT_WORK_DIR": str(tmp_path / "second")}
    succeed("merge", url, *options, env=second)
    assert (tmp_path / "store/run/pool/responses.parquet").exists()
    succeed(*search, env=second)
    succeed("states", url, *options, env=second)
    assert (tmp_path / "store/run/audit/states.parquet").exists()
    log = task.log("r")
    assert len([call for call in log if call.get("id")]) == 2 * 2 * (24 + 21), "once by the fixture"
