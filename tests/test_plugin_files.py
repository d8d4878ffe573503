"""Files of plugins: what their hash covers, and files of one name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gapft_harness.core.files import sha256
from gapft_harness.hooks.loading import hash_code
from gapft_harness.hooks.manager import load_plugins
from tests.kit.plugins import write_plugin

#: Changes of files around a plugin's file, and whether they may change its results.
CHANGES = {
    "plugin.py": True,
    "beside.py": True,
    "helpers/__init__.py": True,
    "helpers/deep/__init__.py": True,
    "helpers/deep/late.py": True,
    "notes.txt": False,
    "no_package/other.py": False,
    "__pycache__/plugin.pyc": False,
}


@pytest.mark.parametrize("file", CHANGES)
def test_hash_covers_the_code_beside_a_file(file: str, tmp_path: Path) -> None:
    """Also code that no import statement names, such as a module found by ``importlib``."""
    for name in CHANGES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    module = load_module(tmp_path / "plugin.py")
    before = hash_code(module, len)
    (tmp_path / file).write_text("1\n")
    assert (hash_code(module, len) != before) is CHANGES[file]


def test_hash_covers_the_data_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_with_data"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("package_with_data.plugin")
    hashes = [hash_code(module, len)]
    for name in ("words.txt", "plugin.py", "__pycache__/x.pyc"):
        (package / name).write_text("1\n")
        hashes.append(hash_code(module, len))
    assert len({*hashes}) == 3
    assert hashes[2] == hashes[3]


def test_hash_of_an_installed_module_ignores_the_others(tmp_path: Path) -> None:
    """Its folder is that of all packages; a new one must not make everything again."""
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "plugin.py").write_text("")
    module = load_module(tmp_path / "plugin.py")
    before = hash_code(module, len)
    (tmp_path / "other.py").write_text("")
    assert hash_code(module, len) == before
    (tmp_path / "plugin.py").write_text("1\n")
    assert hash_code(module, len) != before


def load_module(file: Path) -> ModuleType:
    """Import a file under a name of its own, as ``--plugin`` does."""
    name = f"beside_{sha256(file)[:6]}_{file.parent.name}".replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_same_named_files_are_separate_plugins(tmp_path: Path) -> None:
    files = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        source = f"\n\nclass Pick:\n    word = '{name}'\n\n    def __call__(self, pool, n, rng):\n"
        source += "        return Pick.word\n"
        file = tmp_path / name / "mine.py"
        files.append(write_plugin(file, source, selectors=[f"'{name}', Pick()"]))
    plugins = load_plugins(files)
    entries = [plugins.get("selector", name) for name in ("one", "other")]
    assert [entry.value(None, 1, None) for entry in entries] == ["one", "other"]
    assert [entry.plugin for entry in entries] == files
    modules = [type(entry.value).__module__ for entry in entries]
    assert [sys.modules[m].__file__ for m in modules] == files
    assert len({entry.code_hash for entry in entries}) == 2
    alone = load_plugins(files[:1]).get("selector", "one")
    assert (alone.code_hash, type(alone.value).__module__) == (entries[0].code_hash, modules[0])
