"""``gapft run``: run a recipe, or single stages of it, or all cells of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapft_harness.cli.options import (
    Condition,
    IncludePath,
    Limit,
    Model,
    ModelArgs,
    OptionalRunDir,
    Options,
    PluginFile,
    Seed,
    Set,
    TaskName,
    build_settings,
    list_recipe_names,
    list_stage_names,
)
from gapft_harness.core.errors import UserError

if TYPE_CHECKING:
    from gapft_harness.recipe.recipe import Recipe

GROUP = "Train on the gap"
EXAMPLE = "gapft run demo --only search --only states"


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="a recipe's or study's file, a bundled one's name, or the folder of a run to "
            "continue",
            autocompletion=list_recipe_names,
        ),
    ] = None,
    run_dir: OptionalRunDir = None,
    only: Annotated[
        list[str],
        typer.Option(
            "--only",
            metavar="STAGE",
            help="only this stage: search, states, select, train, scale, audit, report, or a stage "
            "of an experiment; repeatable",
            autocompletion=list_stage_names,
        ),
    ] = [],
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    limit: Limit = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="print settings, stages and costs; exit with 1 if something is missing",
        ),
    ] = False,
    split: Annotated[
        list[str],
        typer.Option(
            "--split",
            metavar="NAME",
            help="with --only search: only this split (pool, audit, calibration); repeatable",
        ),
    ] = [],
    overrides: Set = [],
    condition: Condition = [],
    seed: Seed = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Run a recipe or a study up to the report; the same command continues an interrupted run."""
    from gapft_harness.cli.runs import resolve_arguments
    from gapft_harness.recipe.bundled import find_file, has_cells

    recipe_name, place = resolve_arguments(recipe, run_dir)
    if recipe_name is not None and has_cells(find_file(recipe_name)):
        options = {
            "--only": only, "--task": task, "--model": model, "--model-args": model_args,
            "--limit": limit, "--split": split, "--set": overrides, "--condition": condition,
            "--seed": seed,
        }  # fmt: skip
        if given := [name for name, value in options.items() if value not in (None, [])]:
            raise UserError(f"{', '.join(given)}: {recipe_name} is a study; edit its file instead")
        _run_study(recipe_name, place, dry_run, plugin, include_path)
        return
    settings = build_settings(model, limit, overrides)
    choice = Options(
        *(recipe_name, task, model_args, settings, condition, seed, plugin, include_path),
        splits=split,
    )
    if split and "search" not in only:
        raise UserError("--split: needs --only search")
    if dry_run:
        _print_dry_run(choice, place)
    elif only:
        _run_chosen_stages(only, choice, place)
    else:
        from gapft_harness.cli.runs import run_recipe
        from gapft_harness.cli.summary import print_summary

        page = run_recipe(choice, place)
        print_summary(page.parent / "results.json")
        typer.echo(f"report: {page}")


def _print_dry_run(choice: Options, place: Path | None) -> None:
    from gapft_harness.cli.dry_run import NOTHING_MISSING, describe_dry_run

    text = describe_dry_run(choice, place)
    typer.echo(text)
    if not text.endswith(f"\n{NOTHING_MISSING}"):
        raise typer.Exit(1)


def _run_chosen_stages(only: list[str], choice: Options, place: Path | None) -> None:
    from gapft_harness.cli.runs import find_default_place, run_stages_alone

    if (choice.conditions or choice.seeds) and only != ["report"]:
        raise UserError("--condition, --seed: expected without --only, or with --only report")
    page = run_stages_alone(only, place or find_default_place(choice), choice)
    if "report" in only:
        typer.echo(f"report: {page}")


def _run_study(
    name: str,
    place: Path | None,
    dry_run: bool,
    plugin_files: Sequence[str],
    include_paths: Sequence[str],
) -> None:
    from gapft_harness.cli.interrupts import announce_resumable
    from gapft_harness.cli.runs import resolve_recipe, run_recipe
    from gapft_harness.core.offline import force_offline
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.stages.search.data import resolve_task_settings
    from gapft_harness.study.driver import describe_study, run_study
    from gapft_harness.study.recipe import read_study

    study, plugins = read_study(name), load_plugins(plugin_files)
    folder = place or Path("runs", study.name)

    def build_options(cell: str) -> Options:
        recipe, overrides = study.cells[cell].recipe, study.list_overrides(cell)
        return Options(recipe, None, None, overrides, (), study.seeds, plugin_files, include_paths)

    def resolve_cell(cell: str) -> Recipe:
        return resolve_recipe(build_options(cell))

    def resolve_task(recipe: Recipe) -> Mapping[str, Any] | None:
        return resolve_task_settings(recipe, plugins, include_paths)

    if dry_run:
        with force_offline():
            typer.echo(describe_study(study, folder, resolve_cell, resolve_task))
        return
    with announce_resumable():
        page = run_study(
            study,
            folder,
            resolve_cell,
            lambda cell, cell_place: run_recipe(build_options(cell), cell_place),
            lambda line: typer.echo(line, err=True),
            resolve_task,
        )
    typer.echo(f"report: {page}")
