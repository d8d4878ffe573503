"""Plugin loading: errors name the plugin and the hook."""

from __future__ import annotations

import sys
from pathlib import Path

from gapft_harness.hooks.manager import load_plugins

HEAD = "from gapft_harness.api import hookimpl\n"


def write_plugin(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text)
    return [str(path)]


def test_same_named_files_are_separate_plugins(tmp_path: Path) -> None:
    files = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        files += write_plugin(
            tmp_path / name,
            f"class Pick:\n    word = '{name}'\n\n    def __call__(self, pool, n, rng):\n"
            "        return Pick.word\n"
            f"@hookimpl\ndef register_selectors(register):\n    register('{name}', Pick())\n",
        )
    plugins = load_plugins(files)
    entries = [plugins.get("selector", name) for name in ("one", "other")]
    assert [entry.value(None, 1, None) for entry in entries] == ["one", "other"]
    assert [entry.plugin for entry in entries] == files
    modules = [type(entry.value).__module__ for entry in entries]
    assert [sys.modules[m].__file__ for m in modules] == files
    assert len({entry.code_hash for entry in entries}) == 2
    alone = load_plugins(files[:1]).get("selector", "one")
    assert (alone.code_hash, type(alone.value).__module__) == (entries[0].code_hash, modules[0])
