"""A plugin's hash covers the modules that it imports from its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gapft_harness.hooks.imports import find_imported_files
from tests.kit.command import gapft
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.tiny_models import write_byte_llama

FILES = {
    "plugin.py": "import json, pytest, gapft_harness, helpers_of_it\nimport rules_of_it.late as x\n"
    "def judge():\n    from within_it import a_function\n",
    "helpers_of_it.py": "import deep_one\nimport helpers_of_it\n",
    "deep_one.py": "import rules_of_it.nothing_there\n",
    "rules_of_it/__init__.py": "from .early import A\nfrom . import sibling, B\n",
    "rules_of_it/early.py": "from ..outside import C\n",
    "rules_of_it/sibling.py": "",
    "rules_of_it/late.py": "",
    "rules_of_it/unused.py": "",
    "spaces_of_it/inner.py": "",
    "within_it.py": "import spaces_of_it.inner\nimport broken_one\n",
    "broken_one.py": "def (",
    "json.py": "raise SystemExit\n",
    "unrelated.py": "",
}


def test_finds_local_imports_without_running_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = {
        "broken_one", "deep_one", "helpers_of_it", "rules_of_it", "rules_of_it.early",
        "rules_of_it.late", "rules_of_it.sibling", "spaces_of_it.inner", "within_it",
    }  # fmt: skip
    imported = find_imported_files(tmp_path / "plugin.py")
    assert set(imported) == expected
    assert all(path.is_relative_to(tmp_path) for path in imported.values())


PLUGIN = CONTAINS.replace(
    "class Contains", "import helpers_of_letters\n\n\nclass Contains"
).replace("g in r and", "helpers_of_letters.holds(g, r) and")


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
        manifest = json.loads((tmp_path / "run/manifest.json").read_text())
        passed = manifest["verdict_counts"]["pool"].get("pass", 0)
        judged, generated = (
            {path.parent.name for path in tmp_path.glob(f".store/{step}/*/made_from.json")}
            for step in ("judge", "generate")
        )
        return judged, passed, len(generated)

    first = run()
    assert run() == first
    helper.write_text("def holds(gold, text):\n    return True\n")
    done = gapft("run", "run", "--only", "states", "--plugin", "plugin.py", cwd=tmp_path, env=env)
    assert done.returncode == 2, "other stages stop"
    assert "contains" in done.stderr
    again = run()
    assert again[0] > first[0]
    assert again[1] == 8 * 3 > first[1]
    assert again[2] == first[2], "responses are reused"


def remove_file(path: Path) -> None:
    path.unlink()


def edit_file(path: Path) -> None:
    path.write_text("A = 2\n")


@pytest.mark.parametrize("change", [remove_file, edit_file])
def test_component_hash_covers_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    from gapft_harness.hooks.loading import collect_registrations, find_plugins

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "words_of_it.py").write_text("A = 1\n")
    file = tmp_path / "rule.py"
    file.write_text(
        "from gapft_harness.api import hookimpl\n\n\ndef last(passing):\n    import words_of_it\n\n"
        "    return passing[-words_of_it.A]\n\n\n@hookimpl\n"
        "def register_response_rules(register):\n    register('last', last)\n"
    )

    def code() -> str:
        *_, (name, load) = find_plugins([str(file)])
        [entry] = collect_registrations(name, load())
        return entry.code_hash

    before = code()
    assert code() == before
    change(tmp_path / "words_of_it.py")
    assert code() != before
