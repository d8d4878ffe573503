"""``gapft list``: list tasks, recipes and plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gapft_harness.cli.options import PluginFile
from gapft_harness.core.errors import unknown_value_error

EXAMPLE = "gapft list recipes"
LISTABLE = ("tasks", "recipes", "plugins")
WITH_PATH = ("tasks", "demo")


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="tasks, recipes or plugins", autocompletion=lambda: [*LISTABLE]
        ),
    ],
    path: Annotated[
        bool,
        typer.Option(
            "--path",
            help="With tasks: print their folder, for lm_eval --include_path; with demo: the "
            "folder of the demo's model.",
        ),
    ] = False,
    plugin: PluginFile = [],
) -> None:
    """List the bundled tasks or recipes, or the components of all plugins with their origin."""
    from gapft_harness.demo import find_policy
    from gapft_harness.lm_eval_bridge.discovery import list_tasks
    from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path

    names = WITH_PATH if path else LISTABLE
    if what not in names:
        raise unknown_value_error("list --path" if path else "list", what, "kind", names)
    if path:
        typer.echo(find_policy() if what == "demo" else tasks_path())
    elif what == "tasks":
        print_columns([(task.name, task.split, task.description) for task in list_tasks()])
    elif what == "recipes":
        print_columns(list_recipes())
    else:
        print_columns(_list_components(plugin))


def _list_components(files: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """List the registered components: kind, name, plugin, summary."""
    from gapft_harness.hooks.manager import load_plugins

    return [
        (entry.kind, entry.name, _shorten_plugin(entry.plugin), entry.summary)
        for entry in load_plugins(files).all()
    ]


def list_recipes() -> list[tuple[str, str]]:
    """List the bundled recipes and studies with the first sentence of their descriptions."""
    from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies
    from gapft_harness.recipe.reading import load_recipe
    from gapft_harness.study.recipe import read_study

    descriptions = {
        name: load_recipe(path).description for name, path in list_bundled_recipes().items()
    }
    descriptions |= {name: read_study(name).description for name in list_bundled_studies()}
    return [
        (name, f"{text.partition('. ')[0].strip().removesuffix('.')}.")
        for name, text in sorted(descriptions.items())
    ]


def _shorten_plugin(plugin: str) -> str:
    for place in ("gapft_harness.plugins.", "gapft_harness."):
        if plugin.startswith(place):
            return f"bundled: {plugin.removeprefix(place)}"
    return plugin


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows as columns, one line each, however narrow the terminal is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())
