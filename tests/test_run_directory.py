"""Folders of users stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

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
