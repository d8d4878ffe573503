"""Define the options that commands share, their shell completion, and the list of commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from gapft_harness.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a command on the recipe, and where to find plugins and tasks.

    Attributes:
        recipe: a recipe file, or the name of a bundled recipe.
        task: replaces ``data.task``.
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
    task: str | None = None
    model_args: str | None = None
    overrides: Sequence[str] = ()
    conditions: Sequence[str] = ()
    seeds: Sequence[int] = ()
    plugin_files: Sequence[str] = ()
    include_paths: Sequence[str] = ()
    splits: Sequence[str] = ()
    alone: bool = False


Form = Literal["terminal", "markdown", "json"]
Format = Annotated[
    Form,
    typer.Option("--format", help="markdown, e.g. for a pull request, or json, as in results.json"),
]

#: The headings of the list of commands, in order.
GROUPS = ("Train on the gap", "Measure and compare", "Exchange", "Look around")


class GroupedHelp(TyperGroup):
    """Lists commands in groups, with the full help of each command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list; wrap long lines."""
        grouped: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            grouped[command.rich_help_panel].append((name, command.help or ""))
        width = max(len(name) for name in self.list_commands(ctx))
        for heading, rows in grouped.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), help_text) for name, help_text in rows])


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
    from gapft_harness.lm_eval_bridge.task_file.opened_files import tasks_path

    return sorted(path.stem for path in tasks_path().glob("*/*.yaml"))


def parse_folder(text: str) -> Path:
    """Parse the folder that an option names.

    Raises:
        UserError: the text is empty (as an unset shell variable is) or a URL.
    """
    if not text:
        raise UserError(
            "'': expected a folder, but the text is empty; write . for the current folder"
        )
    if "://" in text:
        raise UserError(
            f"{text}: expected a folder on this machine, not a URL; copy the folder to this "
            "machine first, e.g. with aws s3 sync or rclone"
        )
    return Path(text)


RunDir = Annotated[
    Path, typer.Argument(metavar="RUN", help="the run directory", parser=parse_folder)
]
OptionalRunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="the run directory; default: runs/NAME",
        parser=parse_folder,
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="first create the run directory from this recipe",
        autocompletion=list_recipe_names,
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        "--tasks",
        metavar="NAME",
        help="the lm-eval task to train on; replaces data.task",
        autocompletion=list_task_names,
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="the sampler, e.g. hf; replaces model.backend"),
]
ModelArgs = Annotated[
    str | None,
    typer.Option("--model-args", metavar="A=B,...", help="as in lm-eval, e.g. pretrained=MODEL"),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        help="use N problems of pool and of audit; replaces data.pool_limit, data.audit_limit",
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="override a recipe key, e.g. search.k=16; repeatable"
    ),
]
Condition = Annotated[
    list[str],
    typer.Option(
        "--condition",
        metavar="NAME",
        help="run only this condition, besides those already trained; repeatable",
    ),
]
Seed = Annotated[
    list[int],
    typer.Option(
        "--seed", metavar="N", help="run only this training seed, besides those trained; repeatable"
    ),
]
IncludePath = Annotated[
    list[str],
    typer.Option("--include-path", metavar="DIR", help="a folder with task YAML; repeatable"),
]
PluginFile = Annotated[
    list[str],
    typer.Option("--plugin", metavar="FILE", help="a Python file with hooks; repeatable"),
]


def build_settings(model: str | None, limit: int | None, overrides: list[str]) -> list[str]:
    """Convert options of lm-eval to settings of recipe keys; ``--set`` of the same key wins.

    Args:
        model: the option ``--model``.
        limit: the option ``--limit``.
        overrides: texts KEY=VALUE of ``--set``.
    """
    settings = [] if model is None else [f"model.backend={model}"]
    if limit is not None:
        settings += [f"data.pool_limit={limit}", f"data.audit_limit={limit}"]
    return [*settings, *overrides]
