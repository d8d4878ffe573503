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
    as_folder,
    print_again,
    study_names,
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
            autocompletion=study_names,
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
            parser=as_folder,
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
        _scaling(recipe, condition, out)
        return
    if condition:
        raise UserError("--condition: needs --scaling; the file of a study names its conditions")
    if len(recipe) > 1:
        raise UserError(f"{recipe[1]}: expected one study; several runs need --scaling")
    from gapft_harness.cli.unchanged import copied_output, run_asked

    given = Options(recipe[0], plugin_files=plugin, include_paths=include_path)
    asked = run_asked("study", given, recipe[0], run_dir)
    if not dry_run and (output := asked.recall()) is not None:
        print_again(output)
        return
    from gapft_harness.cli.interrupts import goes_on
    from gapft_harness.cli.outcome import Outcome, Scope, inputs_of_run
    from gapft_harness.cli.runs import resolve_recipe, run_recipe
    from gapft_harness.cli.unchanged import Watched
    from gapft_harness.core.offline import offline
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.recipe.bundled import find_study
    from gapft_harness.stages.search.data import settled
    from gapft_harness.study.driver import describe_study, run_study, study_folder
    from gapft_harness.study.recipe import read_study

    of = read_study(recipe[0])
    folder = study_folder(run_dir or Path("runs", of.name))

    def options(name: str) -> Options:
        cell, overrides = of.cells[name].recipe, of.overrides(name)
        return Options(cell, None, None, overrides, (), of.seeds, plugin, include_path)

    def resolve(name: str) -> Recipe:
        return resolve_recipe(options(name))

    plugins = load_plugins(plugin)

    def settle(recipe: Recipe) -> Mapping[str, Any] | None:
        return settled(recipe, plugins, include_path)

    if dry_run:
        with offline():
            typer.echo(describe_study(of, folder, resolve, plugin, settle))
        return

    def find_scope() -> Scope:
        inputs = Watched({recipe[0], str(find_study(recipe[0])), *plugin})
        runs = {}
        for name, cell in of.cells.items():
            place = Path(of.place(name, folder))
            if cell.recipe is None:
                inputs.folders.add(str(place))
                continue
            runs[place] = options(name)
            own = inputs_of_run(runs[place], resolve(name), place)
            inputs.files |= own.files
            inputs.folders |= own.folders
        return Scope(inputs, runs, folder)

    outcome = Outcome(asked, find_scope)
    with goes_on():
        page = run_study(
            of,
            folder,
            resolve,
            lambda name, place: run_recipe(options(name), place),
            lambda line: typer.echo(line, err=True),
            settle,
        )
    with copied_output() as pieces:
        typer.echo(f"report: {page}")
    outcome.keep("".join(pieces))


def _scaling(runs: list[str], conditions: list[str], out: Path | None) -> None:
    from gapft_harness.core.files import require_folder
    from gapft_harness.experiments.scaling.pooled import pool_scaling

    if out is not None:
        require_folder(out)
    pooled = pool_scaling(runs, conditions).document
    if out is not None:
        pooled.write(out)
    typer.echo(pooled.markdown().rstrip())
