"""``gapft study``: run or collect several runs, and compare them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapft_harness.cli.options import (
    IncludePath,
    OptionalRunDir,
    Options,
    PluginFile,
    list_study_names,
    parse_folder,
)
from gapft_harness.core.errors import UserError

if TYPE_CHECKING:
    from gapft_harness.recipe.recipe import Recipe

GROUP = "Train on the gap"
EXAMPLE = "gapft study paper/main --dry-run"


def command(
    recipe: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY",
            help="a study file or a bundled study's name; with --scaling: audited runs",
            autocompletion=list_study_names,
        ),
    ],
    run_dir: OptionalRunDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print cells, budgets and remaining work; run nothing")
    ] = False,
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling",
            help="compare adapters of runs at chosen scales; each condition is an environment",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="with --scaling: also write the tables to DIR",
            parser=parse_folder,
        ),
    ] = None,
    condition: Annotated[
        list[str],
        typer.Option(
            "--condition",
            metavar="NAME",
            help="with --scaling: a condition that is an environment of its run; default: all; "
            "repeatable",
        ),
    ] = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Run the cells of a study, or collect existing runs, and report them together."""
    if scaling:
        _compare_scaling(recipe, condition, out)
        return
    if condition:
        raise UserError("--condition: needs --scaling; the file of a study names its conditions")
    if len(recipe) > 1:
        raise UserError(f"{recipe[1]}: expected one study; several runs need --scaling")
    from gapft_harness.cli.interrupts import announce_resumable
    from gapft_harness.cli.runs import resolve_recipe, run_recipe
    from gapft_harness.core.offline import force_offline
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.stages.search.data import resolve_task_settings
    from gapft_harness.study.driver import check_study_folder, describe_study, run_study
    from gapft_harness.study.recipe import read_study

    study = read_study(recipe[0])
    folder = check_study_folder(run_dir or Path("runs", study.name))

    def build_options(name: str) -> Options:
        cell, overrides = study.cells[name].recipe, study.list_overrides(name)
        return Options(cell, None, None, overrides, (), study.seeds, plugin, include_path)

    def resolve_cell(name: str) -> Recipe:
        return resolve_recipe(build_options(name))

    plugins = load_plugins(plugin)

    def settle_cell(recipe: Recipe) -> Mapping[str, Any] | None:
        return resolve_task_settings(recipe, plugins, include_path)

    if dry_run:
        with force_offline():
            typer.echo(describe_study(study, folder, resolve_cell, plugin, settle_cell))
        return

    with announce_resumable():
        page = run_study(
            study,
            folder,
            resolve_cell,
            lambda name, place: run_recipe(build_options(name), place),
            lambda line: typer.echo(line, err=True),
            settle_cell,
        )
    typer.echo(f"report: {page}")


def _compare_scaling(runs: list[str], conditions: list[str], out: Path | None) -> None:
    from gapft_harness.core.files import require_folder
    from gapft_harness.experiments.scaling.pooled import pool_scaling

    if out is not None:
        require_folder(out)
    document = pool_scaling(runs, conditions).document
    if out is not None:
        document.write(out)
    typer.echo(document.to_markdown().rstrip())
