"""A run at a URL: sealed files are there after each stage, and another machine goes on."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.mirror import Mirror, placed, working_copy
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.verify.run import verify
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


def there_whole() -> list[str]:
    return sorted(fsspec.filesystem("memory").find("/bucket"))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder as a store that can only be read: a web server on loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Writes nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


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


def test_a_push_onto_what_another_machine_sealed_is_refused_and_writes_nothing(
    task: Letters,
) -> None:
    """Two machines search a shard each for one URL that was empty when both began."""
    runs = [
        task.run("r", splits=("pool",), shard=f"{n}/2", at=f"machine{n}", search={"k": 4})
        for n in (1, 2)
    ]
    Mirror(URL, runs[0].path).push()
    before = {path: fsspec.filesystem("memory").cat_file(path) for path in there_whole()}
    with pytest.raises(UserError, match=r"differs from its working copy .*machine2 in pool/shards"):
        Mirror(URL, runs[1].path).push()
    assert {path: fsspec.filesystem("memory").cat_file(path) for path in there_whole()} == before
    Mirror(URL, runs[0].path).pull()  # which is not refused


def test_machines_that_search_for_urls_of_their_own_are_merged_from_there(tmp_path: Path) -> None:
    task = letters(tmp_path, pool=8, audit=6)
    recipe = task.run("r", splits=(), search={"k": 4}).path / "recipe.yaml"
    urls = [f"file://{tmp_path}/store/shard{n}" for n in (1, 2)]
    options = ["--plugin", task.plugins[0]]
    for n, url in enumerate(urls, start=1):
        succeed(
            *("run", f"file://{recipe}", "--run-dir", url, "--only", "search"),
            *("--shard", f"{n}/2", *options),
            *("--include-path", tmp_path / "tasks"),
            env={"GAPFT_WORK_DIR": str(tmp_path / f"machine{n}")},
        )
    with served(tmp_path / "store") as base:  # which nothing can be written to
        done = succeed(
            *("run", "--run-dir", tmp_path / "merged", "--only", "merge", *options),
            *("--shards-of", f"{base}/shard1", "--shards-of", f"{base}/shard2"),
            env={"GAPFT_WORK_DIR": str(tmp_path / "third")},
        )
    assert "Traceback" not in done.stderr
    assert RunDirectory.open(tmp_path / "merged").manifest()["shards"] == {"pool": 2, "audit": 2}


def test_a_run_that_can_only_be_read_is_verified(tmp_path: Path) -> None:
    task = letters(tmp_path)
    searched(task)
    env = {"GAPFT_WORK_DIR": str(tmp_path / "work")}
    with served(tmp_path) as base:
        read = succeed("verify", f"{base}/r", "--plugin", task.plugins[0], env=env)
        assert "4 sealed files have their hashes" in read.stdout
        refused = gapft(
            "run", f"{base}/r", "--only", "states", "--plugin", task.plugins[0], env=env
        )
        assert refused.returncode == 2
        assert f"run directory {base}/r: cannot be written" in refused.stderr
        absent = gapft("verify", f"{base}/none", env=env)
    assert absent.returncode == 2
    assert "is no run directory" in absent.stderr


def test_shards_of_a_merged_run_may_be_removed(task: Letters) -> None:
    """Here and at the URL; what the manifest lists besides must be there."""
    run = task.run("r", splits=("pool", "audit"), executor={"shards": 2}, search={"k": 4})
    assert "pool/shards/1-of-2/responses.parquet" in run.manifest()["files"]
    for split in ("pool", "audit"):
        shutil.rmtree(run.path / split / "shards")
    assert verify(run.path, task.plugins).differences == []
    Mirror(URL, run.path).push()
    copy = task.folder / "copy"
    Mirror(URL, copy).pull()
    assert verify(copy, task.plugins).differences == []
    run_stages(task.context(RunDirectory.open(copy)), ["search", "states"], lambda stage: None)
    (copy / "pool" / "responses.parquet").unlink()
    assert verify(copy, task.plugins).differences[0] == (
        "pool/responses.parquet: is sealed in the manifest and not there"
    )


def test_shards_that_are_not_merged_are_wanted(task: Letters) -> None:
    run = task.run("r", splits=("pool",), shard="1/2", search={"k": 4})
    Mirror(URL, run.path).push()
    shutil.rmtree(run.path / "pool")
    assert len(verify(run.path, task.plugins).differences) == 2
    copy = task.folder / "copy"
    Mirror(URL, copy).pull()
    assert (copy / "pool/shards/1-of-2/responses.parquet").exists()


def test_a_file_that_is_missing_at_the_url_is_said_to_be_missing_there(task: Letters) -> None:
    Mirror(URL, searched(task).path).push()
    fsspec.filesystem("memory").rm_file("/bucket/runs/letters/pool/problems.parquet")
    said = rf"^{URL}/pool/problems\.parquet: is missing there, and the run needs it; restore it"
    with pytest.raises(UserError, match=said):
        Mirror(URL, task.folder / "copy").pull()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionResetError("lost"), r"^run directory memory://.*: cannot be read: .*lost"),
        (PermissionError(13, "no"), r"^run directory memory://.*: cannot be read: PermissionError"),
        (OSError(28, "No space left on device"), r"copy/pool/problems\.parquet: cannot be written"),
    ],
)
def test_what_fails_there_and_what_fails_here_are_told_apart(
    task: Letters, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    Mirror(URL, searched(task).path).push()
    mirror = Mirror(URL, task.folder / "copy")

    def fail(source: str, target: str) -> None:
        raise error

    monkeypatch.setattr(mirror._fs, "get_file", fail)
    with pytest.raises(GapftError, match=said):
        mirror.pull()


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
    search = ["run", recipe, "--run-dir", url, "--only", "search", *options]
    search += ["--include-path", tmp_path / "tasks"]
    first = {"GAPFT_WORK_DIR": str(tmp_path / "first")}
    succeed(*search, "--split", "pool", "--shard", "1/1", env=first)
    assert (tmp_path / "store/run/pool/shards/1-of-1/responses.parquet").exists()
    shutil.rmtree(tmp_path / "first")
    second = {"GAPFT_WORK_DIR": str(tmp_path / "second")}
    succeed("run", url, "--only", "merge", *options, env=second)
    assert (tmp_path / "store/run/pool/responses.parquet").exists()
    succeed(*search, env=second)
    succeed("run", url, "--only", "states", *options, env=second)
    assert (tmp_path / "store/run/audit/states.parquet").exists()
    log = task.log("r")
    assert len([call for call in log if call.get("id")]) == 2 * 2 * (24 + 21), "once by the fixture"
