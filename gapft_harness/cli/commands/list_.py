"""``gapft list``: list tasks, recipes and plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gapft_harness.cli.options import PluginFile
from gapft_harness.core.errors import UserError, did_you_mean

GROUP = "Look around"
EXAMPLE = "gapft list recipes"
LISTABLE = ("tasks", "recipes", "plugins")
WITH_PATH = ("tasks", "demo")


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="tasks, recipes or plugins", autocompletion=lambda: list(LISTABLE)
        ),
    ],
    path: Annotated[
        bool,
        typer.Option(
            "--path",
            help="with tasks: print their folder, for lm_eval --include_path; with demo: the "
            "folder of the demo's model",
        ),
    ] = False,
    plugin: PluginFile = [],
) -> None:
    """List the bundled tasks or recipes, or the components of all plugins with their origin."""
    names = WITH_PATH if path else LISTABLE
    if what not in names:
        raise UserError(f"list {what}{' --path' * path}: {did_you_mean(what, names)}")
    if path:
        from gapft_harness.demo import find_policy
        from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path

        typer.echo(find_policy() if what == "demo" else tasks_path())
    elif what == "tasks":
        typer.echo(_format_tasks())
    else:
        typer.echo(format_columns(list_recipes()) if what == "recipes" else _format_plugins(plugin))


def _format_tasks() -> str:
    """Format a line for each bundled task: name, split, description."""
    from gapft_harness.lm_eval_bridge.discovery import list_tasks

    return format_columns([(t.name, t.split, t.description) for t in list_tasks()])


def _format_plugins(files: Sequence[str]) -> str:
    """Format a line for each registered component: kind, name, plugin, summary."""
    from gapft_harness.hooks.manager import load_plugins

    return format_columns(
        [
            (entry.kind, entry.name, _shorten_plugin(entry.plugin), entry.summary)
            for entry in load_plugins(files).all()
        ]
    )


def list_recipes() -> list[tuple[str, str]]:
    """List the bundled recipes and studies with the first sentence of their descriptions."""
    from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies
    from gapft_harness.recipe.reading import load_recipe
    from gapft_harness.study.recipe import read_study

    rows = []
    descriptions = {
        name: load_recipe(path).description for name, path in list_bundled_recipes().items()
    }
    descriptions |= {name: read_study(name).description for name in list_bundled_studies()}
    for name, text in sorted(descriptions.items()):
        sentence = text.partition(". ")[0].strip()
        rows.append((name, sentence if sentence.endswith(".") else f"{sentence}."))
    return rows


def _shorten_plugin(plugin: str) -> str:
    for place in ("gapft_harness.plugins.", "gapft_harness."):
        plugin = plugin.replace(place, "bundled: ")
    return plugin


def format_columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Format rows as left-aligned columns; the last column has any width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return "\n".join(
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )
