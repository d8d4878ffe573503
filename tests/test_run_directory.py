"""Folders of users stay as they are; files are written whole, and hashed again after edits."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gapft_harness.core import files
from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import replace_file, sha256, sha256_cached
from tests.kit.command import call


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("thesis.tex", "mine"),
        ("run.json", '{"name": "a web page"}'),
        ("run.json", '{"format": 8, "outputs": {"pool": {"place": "0"}}}'),
        ("run.json", "["),
        ("film.mkv.partial", "half"),
        ("log.jsonl", ""),
    ],
)
def test_run_leaves_a_folder_of_the_user(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    done = call("run", "demo", "--run-dir", tmp_path)
    assert done.returncode == 2
    assert "recipe.yaml" in done.stderr
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    texts.pop("run.lock", None)
    assert texts == {name: content}


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
    "edit",
    [
        rewrite_in_place,
        replace_by_rename,
        lambda path: path.write_text("more than one"),
        lambda path: path.with_name("y").write_text(""),
    ],
)
def test_hashes_file_again_only_after_edits(
    tmp_path: Path, hashed_files: list[Path], edit: Callable[[Path], object]
) -> None:
    file = tmp_path / "adapter" / "x"
    replace_file(file, lambda beside: beside.write_text("one"))
    time.sleep(0.02)  # a tick of the file system's clock
    before = [sha256_cached(file.parent) for _ in range(3)]
    assert hashed_files.count(file.parent.resolve()) == 1
    edit(file)
    assert sha256_cached(file.parent) not in before


def test_hashes_recent_files_at_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two edits within one tick of the clock leave no trace."""
    monkeypatch.setattr(files, "sha256", lambda path: path.read_text())
    file = tmp_path / "x"
    for text in ("one", "two", "six"):
        file.write_text(text)
        assert sha256_cached(file) == text


def test_failed_write_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def write(beside: Path) -> None:
        beside.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(GapftError, match=str(path)):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
