"""A plugin's hash covers its package, or its file with all Python code beside it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gapft_harness.core.files import sha256
from gapft_harness.hooks.loading import hash_code
from tests.kit.command import gapft
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.records import read_records
from tests.kit.tiny_models import write_byte_llama

PLUGIN = CONTAINS.replace(
    "class Contains", "import helpers_of_letters\n\n\nclass Contains"
).replace("g in r and", "helpers_of_letters.holds(g, r) and")


@pytest.mark.thorough
def test_edited_helper_module_reruns_the_run(tmp_path: Path) -> None:
    write_byte_llama(tmp_path / "model")
    write_letters(tmp_path, {"pool": 8, "audit": 8})
    (tmp_path / "plugin.py").write_text(PLUGIN)
    helper = tmp_path / "helpers_of_letters.py"
    helper.write_text("def holds(gold, text):\n    return gold in text\n")
    (tmp_path / "recipe.yaml").write_text(
        "name: letters\ndata: {task: letters}\nsearch: {k: 2, temperature: 1.0}\n"
        f"model: {{args: {{pretrained: '{tmp_path / 'model'}', dtype: float32, device: cpu}}}}\n"
    )
    command = ["--include-path", "tasks", "--plugin", "plugin.py", "--only", "search"]
    env = {"PYTHONPATH": str(tmp_path)}

    def run() -> tuple[set[str], int, int]:
        done = gapft("run", "recipe.yaml", "--run-dir", "run", *command, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        passed = read_records(tmp_path / "run")["pool"]["facts"]["verdicts"].get("pass", 0)
        judged, generated = (
            {path.parent.name for path in tmp_path.glob(f".store/{step}/*/*/made_from.json")}
            for step in ("judge_chunks", "generate_chunks")
        )
        return judged, passed, len(generated)

    first = run()
    assert run() == first
    helper.write_text("def holds(gold, text):\n    return True\n")
    done = gapft("run", "run", "--only", "states", "--plugin", "plugin.py", cwd=tmp_path, env=env)
    assert done.returncode == 2, "other stages stop"
    assert "the plugin of verifier changed" in " ".join(done.stderr.split())
    again = run()
    assert again[0] > first[0]
    assert again[1] == 8 * 3 > first[1]
    assert again[2] == first[2], "responses are reused"


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
