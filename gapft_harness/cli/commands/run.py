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
    as_settings,
    print_again,
    recipe_names,
    stage_names,
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
            autocompletion=recipe_names,
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
            autocompletion=stage_names,
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
            help="with --only search: only this split (pool, audit, audit/NAME, calibration); "
            "repeatable",
        ),
    ] = [],
    overrides: Set = [],
    condition: Condition = [],
    seed: Seed = [],
    reuse_versions: Annotated[
        bool,
        typer.Option(
            "--reuse-versions",
            help="reuse work of other versions of torch, transformers, ... or of another device",
        ),
    ] = False,
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Run a recipe up to the report; the same command continues an interrupted run."""
    settings = as_settings(model, limit, overrides)
    asked = None
    if not (only or split or dry_run):
        from gapft_harness.cli.unchanged import run_asked

        options = Options(
            *(recipe, task, model_args, settings, condition, seed, plugin, include_path)
        )
        asked = run_asked("run", options, recipe, run_dir)
        if (output := asked.recall()) is not None:
            print_again(output)
            return
    from gapft_harness.cli.runs import run_place

    named, place = run_place(recipe, run_dir)
    choice = Options(
        *(named, task, model_args, settings, condition, seed, plugin, include_path),
        splits=split,
        reuse_versions=reuse_versions,
    )
    if split and "search" not in only:
        raise UserError("--split: needs --only search")
    if dry_run:
        _describe(choice, place)
    elif asked is not None:
        from gapft_harness.cli.summary import run_and_print

        run_and_print(choice, place, asked)
    else:
        _stages(only, choice, place)


def _describe(choice: Options, place: Path | None) -> None:
    from gapft_harness.cli.dry_run import NOTHING_MISSING, describe

    said = describe(choice, place)
    typer.echo(said)
    if not said.endswith(f"\n{NOTHING_MISSING}"):
        raise typer.Exit(1)


def _stages(only: list[str], choice: Options, place: Path | None) -> None:
    from gapft_harness.cli.runs import default_place, run_stages_alone

    if (choice.conditions or choice.seeds) and only != ["report"]:
        raise UserError("--condition, --seed: expected without --only, or with --only report")
    page = run_stages_alone(only, place or default_place(choice), choice)
    if "report" in only:
        typer.echo(f"report: {page}")
