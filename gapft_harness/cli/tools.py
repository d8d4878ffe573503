"""Commands beside the stages: lm_eval, lists, the sandbox, and what this machine can do."""

from __future__ import annotations

from typing import Annotated

import typer

from gapft_harness.cli.options import PluginFile


def add_tools(app: typer.Typer) -> None:
    """Adds them to the command."""
    # lm_eval's flags are its own, its --help among them
    passed_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=passed_on, add_help_option=False)(eval)
    for command in (tasks, plugins, recipes, judge, doctor):
        app.command()(command)


def eval(context: typer.Context) -> None:
    """Run lm_eval with all of its own flags; GapFT's tasks are found."""
    from gapft_harness.lm_eval_bridge.discovery import run_lm_eval

    raise typer.Exit(run_lm_eval(context.args))


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
    from gapft_harness.cli.doctor import examine

    typer.echo(examine())
