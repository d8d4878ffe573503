"""Generate the pages of docs/ that come from declarations in the code.

``python -m gapft_harness.cli.reference`` writes them; a test fails if they are out of date.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gapft_harness.cli.commands.list_ import list_recipes
from gapft_harness.cli.main import app
from gapft_harness.cli.options import GROUPS
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.discovery import list_tasks
from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.messages import iterate_keys
from gapft_harness.recipe.reading import list_recipe_keys, load_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.reading.published import (
    PublishedValue,
    list_published,
    parse_published,
)
from gapft_harness.stages.experiment import load_all_experiments
from gapft_harness.study.recipe import CellChoice, StudyRecipe, read_study

_OPENING = """\
# The command line

This page is generated from the help of the commands by `python -m gapft_harness.cli.reference`.

To continue an interrupted command, run it again. The first Ctrl-C ends a command in an orderly way,
the second one at once; in both cases the processes that it started end too. Exit status: 0 for
success, 1 for a failure, 2 for a mistake in the input, 130 after Ctrl-C. `gapft compare` exits with
1 only if a model is worse than the policy allows, and with 3 if the logs cannot decide this.

RECIPE is a recipe file or the name of a bundled recipe; RUN is a
[run directory](run-directory.md). You can write options with underscores, as in lm_eval. If `--set`
and another option set the same key, `--set` wins. Without RECIPE, settings change the run's own
recipe. `gapft --install-completion` lets the shell complete commands, options, recipes and tasks.
"""


_RECIPES_OPENING = """\
# Recipe keys

This page is generated from the code by `python -m gapft_harness.cli.reference`.
[Recipes](recipes.md) explains how to write a recipe.
"""


def build_command_line_page() -> str:
    """Return the text of docs/command-line.md: all commands with their options."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parts = [_OPENING]
    for group in GROUPS:
        parts.append(f"## {group}\n")
        for name in sorted(commands):
            if commands[name].rich_help_panel == group:
                parts += _format_command(name, commands[name])
    return "\n".join(parts)


def _format_command(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    argument_names = "".join(f" {_find_metavar(parameter)}" for parameter in arguments)
    example = command.epilog.partition(": ")[2]
    yield f"### gapft {name}\n\n{command.help}\n\n```console\n{example}\n```\n"
    rows = [(f"`{_find_metavar(parameter)}`", parameter.help or "") for parameter in arguments]
    rows += [(_format_option(parameter), parameter.help or "") for parameter in options]
    if rows:
        yield f"| `gapft {name}{argument_names}` | |\n|---|---|"
        yield "\n".join(f"| {left} | {_escape_pipes(right)} |" for left, right in rows) + "\n"


def _format_option(option: Any) -> str:
    value = "" if option.is_flag else f" {_find_metavar(option)}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _find_metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _escape_pipes(text: str) -> str:
    return text.replace("|", "\\|")


def build_recipe_page() -> str:
    """Return the text of docs/recipe-keys.md: bundled recipes and components, and all keys."""
    plugins = load_plugins()
    entries, experiments = plugins.all(), load_all_experiments(plugins)
    parts = [
        _RECIPES_OPENING,
        "## Recipes\n",
        _build_table(("recipe", "description"), list_recipes()),
    ]
    tasks = [(task.name, task.description) for task in list_tasks()]
    parts += ["## Tasks\n", _build_table(("task", "description"), tasks)]
    selectors = [
        (e.name, _list_parameters(e.value), e.summary) for e in entries if e.kind == "selector"
    ]
    parts += [
        "## Selectors\n",
        _build_table(("selector", "parameters", "what it selects"), selectors),
    ]
    for kind, meaning in (
        ("response rule", "which response it keeps"),
        ("experiment", "what it measures"),
    ):
        rows = [(e.name, e.summary) for e in entries if e.kind == kind]
        parts += [f"## {kind.capitalize()}s\n", _build_table((kind, meaning), rows)]
    keys = [
        (key, _format_default(info), info.description or "")
        for key, info in list_recipe_keys().items()
    ]
    parts += ["## Keys\n", _build_table(("key", "default", "meaning"), keys)]
    keys = [
        (f"experiments.{experiment.name}.{key}", _format_default(info), info.description or "")
        for experiment in experiments
        for key, info in (iterate_keys(experiment.section) if experiment.section else ())
    ]
    parts += ["## Keys of experiments\n", _build_table(("key", "default", "meaning"), keys)]
    for part, model in (
        ("condition", Condition),
        ("study", StudyRecipe),
        ("cell of a study", CellChoice),
    ):
        parts += [f"## Keys of a {part}\n", _build_key_table(model)]
    return "\n".join(parts)


def _list_parameters(function: Any) -> str:
    """List the parameters that a recipe can set under ``params``: all after the first three."""
    parameters = list(inspect.signature(function).parameters.values())[3:]
    return (
        ", ".join(
            f"`{str(p).partition(':')[0]}{_format_parameter_default(p.default)}`"
            for p in parameters
        )
        or "–"
    )


def _format_parameter_default(default: Any) -> str:
    return "" if default is inspect.Parameter.empty else f": {_to_yaml(default)}"


def _format_default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, dict):  # conditions: show their names only
        value = list(value)
    return "–" if value in (None, "", []) else f"`{_to_yaml(value)}`"


def _to_yaml(value: Any) -> str:
    """Write a value as one line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _build_key_table(model: type[BaseModel]) -> str:
    rows = [(key, info.description or "") for key, info in model.model_fields.items()]
    return _build_table(("key", "meaning"), rows)


def _build_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Build a Markdown table whose first column is formatted as code."""
    lines = [head, ("---",) * len(head), *((f"`{row[0]}`", *row[1:]) for row in rows)]
    return "".join(f"| {' | '.join(map(_escape_pipes, line))} |\n" for line in lines).replace(
        "``", "`"
    )


_MAP_OPENING = """\
# The paper, recipe by recipe

This page is generated from the `paper` sections of the recipes by
`python -m gapft_harness.cli.reference`.

For each table and figure, this page lists the recipes that compute it, the tables of
[results.json](report.md#resultsjson) that contain the result, and the printed values that
[a run is compared with](recipes.md#figures-that-a-paper-prints). The comparison is the table
`paper` of results.json. *Reached* says whether a run at full scale reproduced these values;
**no such run was made**. [The table of commands](recipes.md#the-papers-tables-and-figures) lists
small experiments of the same kind.
"""

#: Tables and figures of the paper that no recipe computes.
_NOT_COMPUTED = {
    "Figure 1": "a drawing of the method",
    "Table 9": "a comparison of related methods in words",
}

#: Whether a recipe reproduced the printed values: no recipe was run at the paper's scale.
REACHED = "never run"


def build_paper_page() -> str:
    """Return the text of docs/paper-map.md: tables and figures with recipes, keys and values."""
    recipes_read = {name: load_recipe(file) for name, file in list_bundled_recipes().items()}
    studies = {name: read_study(str(file)) for name, file in list_bundled_studies().items()}
    studies_by_recipe: dict[str, list[str]] = {}
    for name, study in studies.items():
        for cell in study.cells.values():
            studies_by_recipe.setdefault(str(cell.recipe), []).append(f"study `{name}`")
    places = {place for recipe in recipes_read.values() for place in recipe.paper}
    places |= {place for study in studies.values() for place in study.paper}
    parts = [_MAP_OPENING]
    for place in sorted({*places, *_NOT_COMPUTED}, key=_rank_place):
        parts.append(f"## {place}\n")
        if place in _NOT_COMPUTED:
            parts.append(f"Nothing to compute: {_NOT_COMPUTED[place]}.\n")
            continue
        rows = [
            (name, *_build_map_row(recipe, place, studies_by_recipe.get(name, ())), REACHED)
            for name, recipe in recipes_read.items()
            if place in recipe.paper
        ]
        rows += [
            (name, *_build_study_row(study, place), REACHED)
            for name, study in studies.items()
            if place in study.paper
        ]
        head = ("recipe", "tables of results.json", "printed values that are compared", "reached")
        parts.append(_build_table(head, rows))
    return "\n".join(parts)


def _build_map_row(recipe: Recipe, place: str, studies: Iterable[str]) -> tuple[str, str]:
    """Return the tables of results.json and the printed values of a recipe for one place."""
    figures = [
        figure for figure in list_published(recipe.model_dump(mode="json")) if figure.table == place
    ]
    tables = list(dict.fromkeys(figure.kind.table for figure in figures))
    tables = tables or ["conditions", "contrasts"]
    has_states = any(f.subject == "audit" and f.kind.table == "states" for f in figures)
    if not figures or has_states:
        tables += recipe.experiments
    names = [f"`{table}`" for table in tables]
    return ", ".join((*names, *studies)), _format_printed(figures)


def _build_study_row(study: StudyRecipe, place: str) -> tuple[str, str]:
    """Return the tables of a study's results.json and the printed values for one place."""
    figures = [figure for figure in parse_published(study.paper) if figure.table == place]
    tables = dict.fromkeys(figure.kind.table.replace("contrasts", "means") for figure in figures)
    # Appendix C: no printed value is compared
    tables = tables or {"scaling_environments": None}
    return f"{', '.join(f'`{table}`' for table in tables)} of the study", _format_printed(figures)


def _format_printed(figures: Sequence[PublishedValue]) -> str:
    values = [
        f"{figure.subject}.{figure.quantity} {figure.format_value(figure.printed)}"
        for figure in figures
    ]
    return "; ".join(values) or "none"


def _rank_place(place: str) -> tuple[str, int, str]:
    kind, _, number = place.partition(" ")
    order = {"Table": "0", "Figure": "1", "Section": "2"}.get(kind, "3")
    return order, int(number) if number.isdigit() else 0, place


#: Pages by file name in docs/, each with the function that returns its text.
PAGES = {
    "command-line.md": build_command_line_page,
    "recipe-keys.md": build_recipe_page,
    "paper-map.md": build_paper_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parents[2] / "docs" / name).write_text(page(), "utf-8")
