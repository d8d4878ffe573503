"""Generate docs/recipe-keys.md from the declarations of the recipe's keys.

``python -m gapft_harness.cli.reference`` writes it; a test fails if it is out of date.
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

from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.messages import iterate_keys
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.experiment.loading import load_all_experiments
from gapft_harness.study.recipe import CellChoice, StudyRecipe

PAGE = Path(__file__).parents[2] / "docs" / "recipe-keys.md"
_OPENING = """\
# Recipe keys

This page is generated from the code by `python -m gapft_harness.cli.reference`.
[Run on your model and data](run.md) explains how to write a recipe. `gapft list recipes`,
`gapft list tasks` and `gapft list plugins` list the values of names.
"""


def build_page() -> str:
    """Return the text of the page: components that keys name, and all keys."""
    plugins = load_plugins()
    entries = plugins.all()
    experiments = load_all_experiments(plugins)
    selectors = [
        (entry.name, _list_parameters(entry.value), entry.summary)
        for entry in entries
        if entry.kind == "selector"
    ]
    named = {
        kind: [(entry.name, entry.summary) for entry in entries if entry.kind == kind]
        for kind in ("response rule", "experiment")
    }
    experiment_keys = [
        (f"experiments.{experiment.name}.{key}", info)
        for experiment in experiments
        for key, info in (iterate_keys(experiment.section) if experiment.section else ())
    ]
    tables = {
        "Selectors": _build_table(("selector", "parameters", "what it selects"), selectors),
        "Response rules": _build_table(
            ("response rule", "which response it keeps"), named["response rule"]
        ),
        "Experiments": _build_table(("experiment", "what it measures"), named["experiment"]),
        "Keys": _build_key_table(iterate_keys(Recipe)),
        "Keys of experiments": _build_key_table(experiment_keys),
        "Keys of a condition": _build_field_table(Condition),
        "Keys of a study": _build_field_table(StudyRecipe),
        "Keys of a cell of a study": _build_field_table(CellChoice),
    }
    return "\n".join([_OPENING, *(f"## {title}\n\n{table}" for title, table in tables.items())])


def _list_parameters(function: Any) -> str:
    """List the parameters that a recipe can set under ``params``: all after the first three."""
    parameters = [*inspect.signature(function).parameters.values()][3:]
    texts = [
        f"`{parameter.name}{_format_parameter(parameter.default)}`" for parameter in parameters
    ]
    return ", ".join(texts) or "–"


def _format_parameter(default: Any) -> str:
    return "" if default is inspect.Parameter.empty else f": {_to_yaml(default)}"


def _build_key_table(keys: Iterable[tuple[str, FieldInfo]]) -> str:
    rows = [(key, _format_default(info), info.description or "") for key, info in keys]
    return _build_table(("key", "default", "meaning"), rows)


def _build_field_table(model: type[BaseModel]) -> str:
    rows = [(key, info.description or "") for key, info in model.model_fields.items()]
    return _build_table(("key", "meaning"), rows)


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


def _build_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Build a Markdown table whose first column is formatted as code."""
    lines = [head, ("---",) * len(head), *((f"`{row[0]}`", *row[1:]) for row in rows)]
    return "".join(f"| {' | '.join(map(_escape_pipes, line))} |\n" for line in lines)


def _escape_pipes(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(build_page(), "utf-8")
