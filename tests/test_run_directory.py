"""Folders of users stay as they are; files are written whole, and hashed again after edits."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import replace_file, sha256
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

    with pytest.raises(GapftError, match=str(path)):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
