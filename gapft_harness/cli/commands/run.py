"""``gapft run``: run a recipe, or single stages of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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

GROUP = "Train on the gap"
EXAMPLE = "gapft run demo --only search --only states"


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="a recipe file, a bundled recipe's name, or the folder of a run to continue",
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
    """Run a recipe up to the report; the same command continues an interrupted run."""
    from gapft_harness.cli.runs import resolve_arguments

    settings = build_settings(model, limit, overrides)
    recipe_name, place = resolve_arguments(recipe, run_dir)
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
        print_summary(page.parent / "results.json", plugin_files=plugin)
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
