"""Plugin loading: errors name the plugin and the hook."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.hooks.manager import KINDS, load_plugins

HEAD = "from gapft_harness.api import hookimpl\n"


def write_plugin(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text)
    return [str(path)]


def test_single_file_plugin_registers(tmp_path: Path) -> None:
    files = write_plugin(
        tmp_path,
        "def pick(pool, n, rng):\n    '''Mine.'''\n    return pool.draw(pool.solved, n, rng)\n"
        "@hookimpl\ndef register_selectors(register):\n    register('mine', pick)\n",
    )
    assert load_plugins(files).get("selector", "mine").plugin == files[0]


@pytest.mark.parametrize("kind", KINDS.values())
def test_unknown_name_lists_known_names(kind: str) -> None:
    with pytest.raises(UserError, match=f"unknown {kind} 'nonesuch'; .*known: "):
        load_plugins().get(kind, "nonesuch")


def test_loads_a_repeated_plugin_once(tmp_path: Path) -> None:
    files = write_plugin(
        tmp_path, "@hookimpl\ndef register_selectors(register):\n    register('twice', len)\n"
    )
    assert load_plugins(files * 2).get("selector", "twice").plugin == files[0]


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


def test_plugin_exceptions_name_plugin_but_user_errors_pass(tmp_path: Path) -> None:
    files = write_plugin(
        tmp_path,
        "def make():\n    raise RuntimeError('no luck')\n"
        "@hookimpl\ndef register_verifiers(register):\n    register('unlucky', make)\n",
    )
    plugins = load_plugins(files)
    with pytest.raises(PluginError) as caught:
        plugins.create_verifier("unlucky", {})
    message = str(caught.value)
    assert message.startswith("verifier 'unlucky' (plugin ")
    assert "mine.py, hook register_verifiers) failed: RuntimeError: no luck" in message
    with (
        pytest.raises(UserError, match="ours"),
        plugins.get("verifier", "unlucky").wrap_errors(),
    ):
        raise UserError("ours")
    with pytest.raises(ZeroDivisionError), plugins.get("verifier", "boxed_math").wrap_errors():
        1 / 0  # noqa: B018
