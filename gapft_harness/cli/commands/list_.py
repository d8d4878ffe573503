"""``gapft list``: list tasks, recipes and plugins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gapft_harness.cli.options import PluginFile
from gapft_harness.core.errors import UserError, did_you_mean

GROUP = "Look around"
EXAMPLE = "gapft list recipes"
WHAT = ("tasks", "recipes", "plugins")


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="tasks, recipes or plugins", autocompletion=lambda: list(WHAT)
        ),
    ],
    path: Annotated[
        bool,
        typer.Option("--path", help="with tasks: print their folder, for lm_eval --include_path"),
    ] = False,
    plugin: PluginFile = [],
) -> None:
    """List the bundled tasks or recipes, or the components of all plugins with their origin."""
    if what not in WHAT:
        raise UserError(f"list {what}: {did_you_mean(what, WHAT)}")
    if path and what != "tasks":
        raise UserError(f"list {what} --path: --path works with tasks only")
    if what == "tasks":
        from gapft_harness.lm_eval_bridge.task_file.opened_files import tasks_path

        typer.echo(tasks_path() if path else _tasks())
    else:
        typer.echo(columns(recipes()) if what == "recipes" else _plugins(plugin))


def _tasks() -> str:
    """Format a line for each bundled task: name, split, description."""
    from gapft_harness.lm_eval_bridge.discovery import list_tasks

    return columns([(t.name, t.split, t.description) for t in list_tasks()])


def _plugins(files: Sequence[str]) -> str:
    """Format a line for each registered component: kind, name, plugin, summary."""
    from gapft_harness.hooks.manager import load_plugins

    return columns(
        [
            (entry.kind, entry.name, _short(entry.plugin), entry.summary)
            for entry in load_plugins(files).all()
        ]
    )


def recipes() -> list[tuple[str, str]]:
    """List the bundled recipes and studies with the first sentence of their descriptions."""
    from gapft_harness.recipe.bundled import bundled_recipes, bundled_studies
    from gapft_harness.recipe.reading import load_recipe
    from gapft_harness.study.recipe import read_study

    rows = []
    said = {name: load_recipe(path).description for name, path in bundled_recipes().items()}
    said |= {name: read_study(name).description for name in bundled_studies()}
    for name, text in sorted(said.items()):
        sentence = text.partition(". ")[0].strip()
        rows.append((name, sentence if sentence.endswith(".") else f"{sentence}."))
    return rows


def _short(plugin: str) -> str:
    for place in ("gapft_harness.plugins.", "gapft_harness."):
        plugin = plugin.replace(place, "bundled: ")
    return plugin


def columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Format rows as left-aligned columns; the last column has any width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return "\n".join(
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )
