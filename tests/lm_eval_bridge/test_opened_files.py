"""Which opened files belong to a task."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from gapft_harness.lm_eval_bridge.task_file.opened_files import find_code_files, find_data_files


def test_finds_named_data_outside_task_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, folder = tmp_path / "system", tmp_path / "tasks"
    for file in (system / "pool.jsonl", system / "audit.jsonl", system / "zone", folder / "t.yaml"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    monkeypatch.setattr(sys, "prefix", str(system))
    dataset_kwargs = {
        "data_files": {"train": str(system / "pool.jsonl"), "test": "../system/audit.jsonl"}
    }
    task = SimpleNamespace(config=SimpleNamespace(dataset_kwargs=dataset_kwargs))
    opened = [str(system / "zone"), str(folder / "t.yaml")]
    files = find_data_files(opened, task, [folder])
    assert files == [system / "audit.jsonl", system / "pool.jsonl", folder / "t.yaml"]


def test_finds_code_with_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``torch.classes`` has the file name "_classes.py", which is not in a task folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scoring.py").touch()
    for name, file in (("scoring", str(tmp_path / "scoring.py")), ("classes", "_classes.py")):
        module = ModuleType(name)
        module.__file__ = file
        monkeypatch.setitem(sys.modules, f"planted_{name}", module)
    config = SimpleNamespace(to_dict=lambda keep_callable: {})
    files = find_code_files(SimpleNamespace(config=config), [tmp_path])
    assert files == {"scoring.py": tmp_path / "scoring.py"}
