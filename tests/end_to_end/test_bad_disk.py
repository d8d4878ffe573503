"""Disks that are full, read-only or of another kind: one clear error, and nothing is lost."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import call
from tests.kit.kills import WatchedRun, check_finished, prepare_watched_run, read_files
from tests.kit.records import change_run
from tests.kit.runs import RunAt

_PAGE = 4096


@contextlib.contextmanager
def mount_small_disk(folder: Path, pages: int) -> Iterator[None]:
    """Mount a tmpfs with ``pages`` pages on a folder; skip where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={pages * _PAGE}", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        # lazily: a worker of an interrupted test may still use it
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WatchedRun:
    """The undisturbed run."""
    root = tmp_path_factory.mktemp("disks")
    run = prepare_watched_run(root / "whole", root / "model")
    run.finish()
    return run


def check_refused(run: WatchedRun, done: subprocess.CompletedProcess[str], reason: str) -> None:
    """Check that a command that could not write names the reason and leaves no torn file.

    The checkpoint of a training stays, in a folder that is not finished.
    """
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert reason in done.stderr.replace("\n", ""), done.stderr
    torn = [path for path in run.folder.rglob("*.partial") if not [*path.glob(".*.checkpoint")]]
    assert torn == []


@pytest.mark.thorough
@pytest.mark.parametrize("holds", ["run", "store"])
def test_run_goes_on_when_a_full_disk_grows(whole: WatchedRun, tmp_path: Path, holds: str) -> None:
    """Each command comes a little further."""
    run = prepare_watched_run(tmp_path / "full", whole.folder.with_name("model"))
    disk, pages, refused = run.folder / {"run": "run", "store": ".store"}[holds], 12, 0
    with mount_small_disk(disk, pages):
        while (done := run.start()).returncode:
            check_refused(run, done, str(disk) if holds == "store" else "run")
            refused, pages = refused + 1, pages * 3 // 2
            remount(disk, f"size={pages * _PAGE}")
        assert refused > 3
        check_finished(run, whole)


@contextlib.contextmanager
def make_unusable_store(folder: Path, kind: str) -> Iterator[Path]:
    """Make a store that cannot be used; yield its path."""
    if kind == "read-only":
        with mount_small_disk(folder / "disk", 16):
            remount(folder / "disk", "ro")
            yield folder / "disk" / "store"
            remount(folder / "disk", "rw")
    else:
        (folder / "file").write_text("")
        yield folder / "file" / "store"


@pytest.mark.parametrize(
    "kind", [pytest.param("read-only", marks=pytest.mark.thorough), "below a file"]
)
def test_unusable_store_loses_nothing(
    run_at: RunAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Neither does a new run, nor one that needs more samples."""
    run = run_at("searched", "demo")
    with make_unusable_store(tmp_path, kind) as store:
        monkeypatch.setenv("GAPFT_STORE", str(store))
        for place, setting in ((tmp_path / "new", "search.k=2"), (run.path, "search.k=9")):
            before = read_files(tmp_path)
            done = call("run", "demo", "--run-dir", place, "--set", setting, "--only", "search")
            assert done.returncode == 2, done.stderr
            assert "Traceback" not in done.stderr
            assert str(store) in done.stderr.replace("\n", "")
            assert read_files(tmp_path) == before
        assert not (tmp_path / "new").exists()


@pytest.mark.thorough
def test_read_only_run_directory_is_refused(tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "disk", 16):
        (tmp_path / "disk" / "begun").mkdir()
        remount(tmp_path / "disk", "ro")
        for name in ("new", "begun"):
            done = call("run", "demo", "--run-dir", tmp_path / "disk" / name)
            assert done.returncode == 2, done.stderr
            assert str(tmp_path / "disk" / name) in done.stderr.replace("\n", "")
        remount(tmp_path / "disk", "rw")


def test_run_of_another_format_is_refused(run_at: RunAt) -> None:
    run = run_at("searched", "demo")
    change_run(run.path, lambda content: content.update(format=1))
    before = read_files(run.path)
    for words in (("run",), ("run", "--only", "report"), ("verify",)):
        done = call(words[0], run.path, *words[1:])
        assert done.returncode == 2, (words, done.stderr)
        assert "run.json" in done.stderr.replace("\n", "")
        assert "Traceback" not in done.stderr
    assert read_files(run.path) == before
