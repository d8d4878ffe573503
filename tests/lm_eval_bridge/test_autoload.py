"""The import hook of the stock lm_eval."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval.tasks import TaskManager

from gapft_harness import autoload
from tests.lm_eval_bridge.sums import write_sums


def test_hook_ignores_other_imports(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("GAPFT_NO_AUTOLOAD", "1")
    before = list(sys.meta_path)
    autoload.install()
    assert sys.meta_path == before
    monkeypatch.delenv("GAPFT_NO_AUTOLOAD")
    autoload.install()
    hook = sys.meta_path[0]
    assert hook.find_spec("lm_eval") is None
    assert hook.find_spec("json") is None


def test_startup_ignores_package_without_hook(tmp_path, monkeypatch):
    """An older version of this package, or a folder with its name, may come first on the path."""
    line = (Path(autoload.__file__).parent / "gapft_harness_autoload.pth").read_text()
    monkeypatch.delenv("GAPFT_NO_AUTOLOAD", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = list(sys.meta_path)
    exec(line, {})
    assert sys.meta_path[1:] == before
    (tmp_path / "gapft_harness").mkdir()
    (tmp_path / "gapft_harness/__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sys.meta_path[:] = before
    exec(line, {})
    assert sys.meta_path == before


def test_own_tasks_are_found_beside_bundled_ones(tmp_path):
    write_sums(tmp_path)
    manager = TaskManager(include_path=str(tmp_path))
    assert {"sums", "gapft_demo", "gapft_demo_passk"} <= {*manager.all_tasks}


def test_module_is_changed_after_its_first_successful_import(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "imported_late.py"
    changed = []
    autoload.call_after_import("imported_late", changed.append)
    file.write_text("raise RuntimeError('no')\n")
    with pytest.raises(RuntimeError):
        importlib.import_module("imported_late")
    assert changed == []
    file.write_text("value = 'a longer file'\n")
    module = importlib.import_module("imported_late")
    autoload.call_after_import("imported_late", changed.append)
    assert changed == [module, module]


def test_code_eval_waits_for_evaluate():
    """Importing it takes seconds: it imports torch and every pipeline of transformers."""
    code = (
        "import sys; from gapft_harness.lm_eval_bridge.code_eval import install_code_eval\n"
        "install_code_eval(); import lm_eval.tasks; assert 'evaluate' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
