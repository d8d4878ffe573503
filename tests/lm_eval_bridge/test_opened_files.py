"""Which of the files that a task opened are its own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from gapft_harness.lm_eval_bridge.task_file.opened_files import find_code_files, find_data_files


def test_named_data_count_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, folder = tmp_path / "system", tmp_path / "tasks"
    for file in (system / "pool.jsonl", system / "audit.jsonl", system / "zone", folder / "t.yaml"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    monkeypatch.setattr(sys, "prefix", str(system))
    named = {"data_files": {"train": str(system / "pool.jsonl"), "test": "../system/audit.jsonl"}}
    task = SimpleNamespace(config=SimpleNamespace(dataset_kwargs=named))
    opened = [str(system / "zone"), str(folder / "t.yaml")]
    found = find_data_files(opened, task, [folder])
    assert found == [system / "audit.jsonl", system / "pool.jsonl", folder / "t.yaml"]


def test_only_modules_with_a_whole_path_are_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``torch.classes`` names its file "_classes.py", which lies in no folder of tasks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scoring.py").touch()
    for name, file in (("scoring", str(tmp_path / "scoring.py")), ("classes", "_classes.py")):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, f"planted_{name}", module)
    config = SimpleNamespace(to_dict=lambda keep_callable: {})
    found = find_code_files(SimpleNamespace(config=config), [tmp_path])
    assert found == {"scoring.py": tmp_path / "scoring.py"}
