"""Commands beside the stages: studies, lm_eval, lists, the sandbox, what this machine can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapft_harness.cli.commands.compare import compare
from gapft_harness.cli.commands.export import export
from gapft_harness.cli.commands.forecast import forecast
from gapft_harness.cli.commands.gap import gap
from gapft_harness.cli.commands.import_ import import_
from gapft_harness.cli.commands.rejudge import rejudge
from gapft_harness.cli.options import (
    IncludePath,
    OptionalRunDir,
    Options,
    PluginFile,
    StudyName,
)

if TYPE_CHECKING:
    from gapft_harness.recipe.recipe import Recipe


def add_tools(app: typer.Typer) -> None:
    """Adds them to the command."""
    # lm_eval's flags are its own, its --help among them
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=passed_on, add_help_option=False)(eval)
    app.command("import")(import_)
    for command in (
        compare,
        forecast,
        gap,
        rejudge,
        export,
        study,
        tasks,
        plugins,
        recipes,
        judge,
        doctor,
    ):
        app.command()(command)


def eval(context: typer.Context) -> None:
    """Run lm_eval with all of its own flags, and --adapters A,B; GapFT's tasks are found."""
    from gapft_harness.lm_eval_bridge.discovery import run_lm_eval

    raise typer.Exit(run_lm_eval(context.args))


def study(
    recipe: StudyName,
    run_dir: OptionalRunDir = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print cells, budgets, what is left; run nothing")
    ] = False,
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Run or collect the cells of a comparison, and report them together."""
    from gapft_harness.cli.interrupts import goes_on
    from gapft_harness.cli.runs import resolve_recipe, run_recipe
    from gapft_harness.core.offline import offline
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.stages.search.data import settled
    from gapft_harness.study.driver import describe_study, run_study, study_folder
    from gapft_harness.study.recipe import read_study

    of = read_study(recipe)
    folder = study_folder(f"runs/{of.name}" if run_dir is None else run_dir)

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
    with goes_on():
        page = run_study(
            of,
            folder,
            resolve,
            lambda name, place: run_recipe(options(name), str(place)),
            lambda line: typer.echo(line, err=True),
            settle,
        )
    typer.echo(f"report: {page}")


def tasks(
    path: Annotated[
        bool, typer.Option("--path", help="print the folder, for lm_eval --include_path")
    ] = False,
) -> None:
    """List the bundled tasks."""
    from gapft_harness.cli import listing

    typer.echo(listing.tasks_folder() if path else listing.tasks())


def plugins(plugin: PluginFile = []) -> None:
    """List every verifier, selector, sampler, ... and the plugin it comes from."""
    from gapft_harness.cli import listing

    typer.echo(listing.plugins(plugin))


def recipes() -> None:
    """List the bundled recipes."""
    from gapft_harness.cli import listing

    typer.echo(listing.recipes())


def judge(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="programs with tests, one JSON record a line; - is standard input"
        ),
    ],
    tier: Annotated[
        str,
        typer.Option(
            "--tier", metavar="NAME", help="auto, namespaces or landlock: how programs are confined"
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="programs side by side; default: the CPUs"),
    ] = None,
    preload: Annotated[
        list[str],
        typer.Option(
            "--preload",
            metavar="NAME",
            help="a package that programs may import besides the standard library; repeatable; "
            '"" for none',
        ),
    ] = ["numpy"],
    prelude: Annotated[
        str,
        typer.Option(
            "--prelude",
            metavar="NAME",
            help="names that programs know without import: none, or lcb for LiveCodeBench's list",
        ),
    ] = "none",
) -> None:
    """Run programs in the sandbox against their tests; print a line of JSON each."""
    from gapft_harness.cli.display import Display
    from gapft_harness.verification.program_file import judge_file

    display = Display()
    with display:
        for line in judge_file(
            file,
            tier=tier,  # type: ignore[arg-type]
            workers=workers,
            preload=list(filter(None, preload)),
            prelude=prelude,  # type: ignore[arg-type]
            progress=lambda done, total: display.job("judge", done, total),
        ):
            typer.echo(line)


def doctor() -> None:
    """Say what this machine can do: backends, versions, GPU, data found."""
    from gapft_harness.cli.commands.doctor import examine

    typer.echo(examine())
