"""Generate docs/recipe-keys.md from the declarations in the code.

``python -m gapft_harness.cli.reference`` writes the page; a test fails if it is out of date.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gapft_harness.cli.commands.list_ import list_recipes
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.discovery import list_tasks
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.messages import iterate_keys
from gapft_harness.recipe.reading import list_recipe_keys
from gapft_harness.stages.experiment import load_all_experiments
from gapft_harness.study.recipe import CellChoice, StudyRecipe

_OPENING = """\
# Recipe keys

This page is generated from the code by `python -m gapft_harness.cli.reference`.
[Run on your model and data](run.md) explains how to write a recipe.
"""


#: The generated page.
PAGE = Path(__file__).parents[2] / "docs" / "recipe-keys.md"


def build_page() -> str:
    """Return the text of the page: bundled recipes and components, and all keys."""
    plugins = load_plugins()
    entries, experiments = plugins.all(), load_all_experiments(plugins)
    parts = [
        _OPENING,
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


def _escape_pipes(text: str) -> str:
    return text.replace("|", "\\|")


def _build_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Build a Markdown table whose first column is formatted as code."""
    lines = [head, ("---",) * len(head), *((f"`{row[0]}`", *row[1:]) for row in rows)]
    return "".join(f"| {' | '.join(map(_escape_pipes, line))} |\n" for line in lines).replace(
        "``", "`"
    )


if __name__ == "__main__":
    PAGE.write_text(build_page(), "utf-8")
