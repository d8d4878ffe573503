"""Which files of Python belong to a task."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from gapft_harness.lm_eval_bridge.task_file.code_files import find_code_files


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
