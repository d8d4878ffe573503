"""``gapft run``: run a recipe, or single stages of it, or all cells of a study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import (
    IncludePath,
    Model,
    ModelArgs,
    OptionalRunDir,
    Options,
    PluginFile,
    Set,
    TaskName,
    list_recipe_names,
    list_stage_names,
    refuse_given,
)
from gapft_harness.core.errors import UserError

EXAMPLE = "gapft run demo --only search --only states"
_STAGES = "Single stages"


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe's or study's file, a bundled one's name, or the folder of a run to "
            "continue. A study accepts --run-dir, --dry-run, --plugin and --include-path.",
            autocompletion=list_recipe_names,
        ),
    ] = None,
    run_dir: OptionalRunDir = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print conditions, budgets, reused and new steps; exit with 1 if something is "
            "missing.",
        ),
    ] = False,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Use N problems of pool and of audit; replaces data.pool_limit, data.audit_limit.",
        ),
    ] = None,
    overrides: Set = [],
    condition: Annotated[
        list[str],
        typer.Option(
            metavar="NAME", help="Only this condition, besides those already trained; repeatable."
        ),
    ] = [],
    seed: Annotated[
        list[int],
        typer.Option(
            metavar="N", help="Only this training seed, besides those trained; repeatable."
        ),
    ] = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
    only: Annotated[
        list[str],
        typer.Option(
            metavar="STAGE",
            help="Only this stage: search, states, select, train, audit, experiments or report; "
            "repeatable.",
            autocompletion=list_stage_names,
            rich_help_panel=_STAGES,
        ),
    ] = [],
    split: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="With --only search: only this split (pool, audit, calibration); repeatable.",
            rich_help_panel=_STAGES,
        ),
    ] = [],
) -> None:
    """Run a recipe or a study up to the report; the same command continues an interrupted run."""
    from gapft_harness.cli.dry_run import NOTHING_MISSING, describe_dry_run
    from gapft_harness.cli.runs import resolve_arguments, run_recipe, run_stages_alone
    from gapft_harness.cli.summary import print_summary
    from gapft_harness.recipe.bundled import find_file, has_cells

    name, run_dir = resolve_arguments(recipe, run_dir)
    if name is not None and has_cells(find_file(name)):
        refused = {
            "--task": task, "--model": model, "--model-args": model_args, "--limit": limit,
            "--set": overrides, "--condition": condition, "--seed": seed, "--only": only,
            "--split": split,
        }  # fmt: skip
        refuse_given(refused, f"{name} is a study; edit its file instead")
        _run_study(name, run_dir, plugin, include_path, dry_run=dry_run)
        return
    limits = [] if limit is None else [f"data.pool_limit={limit}", f"data.audit_limit={limit}"]
    options = Options(
        recipe=name,
        task=task,
        model=model,
        model_args=model_args,
        overrides=[*limits, *overrides],  # the last of one key wins
        conditions=condition,
        seeds=seed,
        plugin_files=plugin,
        include_paths=include_path,
        splits=split,
    )
    if split and "search" not in only:
        raise UserError("--split: needs --only search")
    if only and (condition or seed) and only != ["report"]:
        raise UserError(
            f"--condition, --seed: --only {','.join(only)} runs for the whole recipe; leave them "
            "out, or leave out --only (--only report may have them)"
        )
    if dry_run and only:
        raise UserError("--dry-run: describes all stages; leave --only out")
    if dry_run:
        text = describe_dry_run(options, run_dir)
        typer.echo(text)
        if not text.endswith(f"\n{NOTHING_MISSING}"):
            raise typer.Exit(1)
    elif only:
        page = run_stages_alone(only, run_dir, options)
        if "report" in only:
            typer.echo(f"report: {page}")
    else:
        page = run_recipe(options, run_dir)
        print_summary(page.parent / "results.json")
        typer.echo(f"report: {page}")


def _run_study(
    name: str,
    run_dir: Path | None,
    plugin_files: Sequence[str],
    include_paths: Sequence[str],
    *,
    dry_run: bool,
) -> None:
    from gapft_harness.cli.interrupts import announce_resumable
    from gapft_harness.cli.runs import resolve_recipe, run_recipe
    from gapft_harness.core.offline import force_offline
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.stages.search.data import resolve_task_settings
    from gapft_harness.study.driver import describe_study, run_study
    from gapft_harness.study.recipe import read_study

    study = read_study(name)
    plugins = load_plugins(plugin_files)
    folder = run_dir or Path("runs", study.name)

    def build_options(cell: str) -> Options:
        return Options(
            recipe=study.cells[cell].recipe,
            overrides=study.list_overrides(cell),
            seeds=study.seeds,
            plugin_files=plugin_files,
            include_paths=include_paths,
        )

    if dry_run:
        with force_offline():
            typer.echo(
                describe_study(
                    study,
                    folder,
                    lambda cell: resolve_recipe(build_options(cell)),
                    lambda recipe: resolve_task_settings(recipe, plugins, include_paths),
                )
            )
        return
    with announce_resumable():
        page = run_study(
            study,
            folder,
            lambda cell: resolve_recipe(build_options(cell)),
            lambda cell, cell_folder: run_recipe(build_options(cell), cell_folder),
            lambda line: typer.echo(line, err=True),
            lambda recipe: resolve_task_settings(recipe, plugins, include_paths),
        )
    typer.echo(f"report: {page}")
