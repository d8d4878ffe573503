"""Traits that plugins declare at registration, which alone determine the engine's behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.registration import find_hook
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe


def write_plugin(folder: Path, kind: str, declared: str) -> str:
    """Write a plugin file that registers one entry with ``declared``."""
    path = folder / "mine.py"
    path.write_text(
        "from gapft_harness.api import UserError, hookimpl\n\n\n"
        "def made(settings, *_):\n    raise UserError(f'{settings.backend}: not today')\n\n\n"
        "def broken(settings):\n    1 / 0\n\n\n"
        f"@hookimpl\ndef {find_hook(kind)}(register):\n    register('mine', made, {declared})\n"
    )
    return str(path)


def build_recipe(**args: Any) -> Recipe:
    model = {"backend": "mine", "args": {"pretrained": "m", **args}}
    return check_recipe({"name": "r", "data": {"task": "t"}, "model": model}, "x")


def test_plugin_sampler_declares_run_independent_arguments(tmp_path: Path) -> None:
    plugins = load_plugins([write_plugin(tmp_path, "sampler", "operational=['port']")])
    assert build_recipe(port=1).build_identity(plugins) == build_recipe(port=2).build_identity(
        plugins
    )
    assert build_recipe(size=1).build_identity(plugins) != build_recipe(size=2).build_identity(
        plugins
    )
    assert build_recipe(port=1).build_identity() != build_recipe(port=2).build_identity(), (
        "nobody says so"
    )


def test_dry_run_calls_a_plugins_check(tmp_path: Path) -> None:
    file = write_plugin(tmp_path, "sampler", "check=made")
    chosen = Options("demo", plugin_files=[file], overrides=["model.backend=mine"])
    missing = describe_dry_run(chosen, tmp_path / "run").partition("# missing here\n")[2]
    assert "model: mine: not today" in missing
