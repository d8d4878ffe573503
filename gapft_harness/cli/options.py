"""What the commands share: options, their completion, and help that is never cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from gapft_harness.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said of the recipe and where to look."""

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
    reuse_versions: bool = False
    searching: Callable[..., dict[str, Any]] | None = None


Form = Literal["terminal", "markdown", "json"]
Format = Annotated[
    Form,
    typer.Option(
        "--format", help="markdown, e.g. for a pull request, or json: what results.json holds"
    ),
]

#: The headings of the list of commands, in their order.
GROUPS = ("Train on the gap", "Measure and compare", "Exchange", "Look around")


class WholeHelp(TyperGroup):
    """Commands in groups, in a list that shows each command's help to its end."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list; lines that are too long are wrapped."""
        grouped: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            grouped[command.rich_help_panel].append((name, command.help or ""))
        width = max(len(name) for name in self.list_commands(ctx))
        for heading, rows in grouped.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), said) for name, said in rows])


#: ``-h`` is help everywhere, and an option may be spelled with underscores, as lm_eval's are.
CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda token: token.replace("_", "-"),
}


def recipe_names() -> list[str]:
    """The bundled recipes, for the shell; where none of them fits, it offers files."""
    from gapft_harness.recipe.bundled import bundled_recipes

    return list(bundled_recipes())


def study_names() -> list[str]:
    """The bundled studies, for the shell."""
    from gapft_harness.recipe.bundled import bundled_studies

    return list(bundled_studies())


def stage_names() -> list[str]:
    """The stages, for the shell."""
    from gapft_harness.stages.pipeline import STAGES

    return [*STAGES]


def task_names() -> list[str]:
    """The bundled tasks, for the shell: by their files, without loading lm-eval."""
    from gapft_harness.lm_eval_bridge.task_file.opened_files import tasks_path

    return sorted(path.stem for path in tasks_path().glob("*/*.yaml"))


def as_folder(text: str) -> Path:
    """Read the folder that an option names.

    Raises:
        UserError: the text is empty, as that of a shell's variable that is not set, or a URL.
    """
    if not text:
        raise UserError("'': expected a folder; . is this one")
    if "://" in text:
        raise UserError(
            f"{text}: is a URL; expected a folder on this machine (aws s3 sync or rclone copies a "
            "run's folder)"
        )
    return Path(text)


RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="the run directory", parser=as_folder)]
OptionalRunDir = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="where the run lives; default runs/NAME",
        parser=as_folder,
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="make the run directory from this recipe first",
        autocompletion=recipe_names,
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        "--tasks",
        metavar="NAME",
        help="lm-eval task to train on; replaces data.task",
        autocompletion=task_names,
    ),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="the sampler, e.g. hf; replaces model.backend"),
]
ModelArgs = Annotated[
    str | None,
    typer.Option("--model-args", metavar="A=B,...", help="as lm-eval's, e.g. pretrained=MODEL"),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        help="only N problems of pool and audit each; replaces data.pool_limit, data.audit_limit",
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
        help="only these, beside trained ones; repeatable",
    ),
]
Seed = Annotated[
    list[int],
    typer.Option("--seed", metavar="N", help="only these, beside trained ones; repeatable"),
]
IncludePath = Annotated[
    list[str],
    typer.Option("--include-path", metavar="DIR", help="a folder with task YAML; repeatable"),
]
PluginFile = Annotated[
    list[str],
    typer.Option("--plugin", metavar="FILE", help="a Python file with hooks; repeatable"),
]


def print_again(output: str) -> None:
    """Print what a command printed when it finished, of which nothing changed since."""
    typer.echo("nothing changed since this command finished", err=True)
    typer.echo(output, nl=False)


def as_settings(model: str | None, limit: int | None, overrides: list[str]) -> list[str]:
    """lm-eval's own options as recipe keys; a ``--set`` of the same key wins."""
    settings = [] if model is None else [f"model.backend={model}"]
    if limit is not None:
        settings += [f"data.pool_limit={limit}", f"data.audit_limit={limit}"]
    return [*settings, *overrides]
