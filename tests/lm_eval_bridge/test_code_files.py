"""Which files of Python belong to a folder of tasks."""

from __future__ import annotations

from pathlib import Path

from gapft_harness.lm_eval_bridge.task_file.code_files import find_code_files


def test_finds_code_of_all_subfolders(tmp_path: Path) -> None:
    names = ("scoring.py", "family/words.py", ".venv/lib/other.py", "lib/site-packages/other.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_code_files(tmp_path) == {name: tmp_path / name for name in names[:2]}
