"""Define the options that several commands share, and their shell completion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gapft_harness.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a command on the recipe, and where to find plugins and tasks.

    Attributes:
        recipe: a recipe file, or the name of a bundled recipe.
        task: replaces ``data.task``.
        model: replaces ``model.backend``.
        model_args: model arguments in the form of lm-eval, ``a=1,b=2``.
        overrides: texts KEY=VALUE of ``--set``.
        conditions: conditions to run; empty: all.
        seeds: training seeds to run; empty: all.
        plugin_files: plugin files.
        include_paths: folders with task YAML.
        splits: splits to search; empty: all.
        alone: whether the task needs only ``splits``, as for ``gapft gap``.
    """

    recipe: str | None = None
    _: KW_ONLY
    task: str | None = None
    model: str | None = None
    model_args: str | None = None
    overrides: Sequence[str] = ()
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    plugin_files: Sequence[str] = ()
    include_paths: Sequence[str] = ()
    splits: Sequence[str] = ()
    alone: bool = False


#: Every command has ``-h``, and accepts underscores in options, as lm_eval spells them.
CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda token: token.replace("_", "-"),
}


def list_recipe_names() -> list[str]:
    """List the bundled recipes for shell completion; the shell offers files if none matches."""
    from gapft_harness.recipe.bundled import list_bundled_recipes, list_bundled_studies

    return [*list_bundled_recipes(), *list_bundled_studies()]


def list_stage_names() -> list[str]:
    """List the stages for shell completion."""
    from gapft_harness.stages.pipeline import STAGES

    return [*STAGES]


def list_task_names() -> list[str]:
    """List the bundled tasks for shell completion, by their files, without loading lm-eval."""
    from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path

    return sorted(path.stem for path in tasks_path().glob("*/*.yaml"))


def parse_folder(text: str) -> Path:
    """Parse the folder that an option names.

    Raises:
        UserError: the text is empty (as an unset shell variable is) or a URL.
    """
    if not text:
        raise UserError("'': expected a folder; write . for the current one")
    if "://" in text:
        raise UserError(f"{text}: expected a folder on this machine; copy it here first")
    return Path(text)


def refuse_given(values: Mapping[str, object], remedy: str) -> None:
    """Refuse options that would have no effect.

    Args:
        values: the value of each option; None or empty if it was not given.
        remedy: why they have none, and what to do.

    Raises:
        UserError: an option was given.
    """
    if given := [option for option, value in values.items() if value not in (None, [])]:
        raise UserError(f"{', '.join(given)}: {remedy}")


Form = Literal["terminal", "markdown", "json"]
Format = Annotated[
    Form, typer.Option("--format", help="The form of the output; json: as in results.json.")
]
RunDir = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run directory.", parser=parse_folder)
]
OptionalRunDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The run directory; default: runs/NAME.", parser=parse_folder),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        "--tasks",
        metavar="NAME",
        help="The lm-eval task; replaces data.task.",
        autocompletion=list_task_names,
    ),
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help="The sampler; replaces model.backend.")
]
ModelArgs = Annotated[
    str | None, typer.Option(metavar="A=B,...", help="As in lm-eval, e.g. pretrained=MODEL.")
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a recipe key, e.g. search.k=16; repeatable."
    ),
]
IncludePath = Annotated[
    list[str], typer.Option(metavar="DIR", help="A folder with task YAML; repeatable.")
]
PluginFile = Annotated[
    list[str], typer.Option(metavar="FILE", help="A Python file with hooks; repeatable.")
]
