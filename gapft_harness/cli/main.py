"""The command line: parse, call, print. What commands do lives in the modules they call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.interrupts import told
from gapft_harness.cli.library_lines import hold_back, shown_on_failure
from gapft_harness.cli.options import (
    CONTEXT,
    Condition,
    IncludePath,
    Limit,
    Model,
    ModelArgs,
    OptionalRecipe,
    OptionalRunDir,
    Options,
    PluginFile,
    RecipeName,
    RunDir,
    Seed,
    Set,
    TaskName,
    WholeHelp,
    as_settings,
)
from gapft_harness.cli.tools import add_tools
from gapft_harness.core.errors import GapftError
from gapft_harness.core.processes import open_standard_streams
from gapft_harness.core.processes.garbage import collect_seldom
from gapft_harness.version import __version__

app = typer.Typer(
    cls=WholeHelp,
    context_settings=CONTEXT,
    help="Learn from the gap between Pass@K and Pass@1, on top of lm-evaluation-harness.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if context.invoked_subcommand != "eval":  # lm_eval's lines are its own to show
        hold_back()
    if version:
        typer.echo(f"gapft-harness {__version__}")
        raise typer.Exit


@app.command()
def demo(
    run_dir: OptionalRunDir = None,
    policy_path: Annotated[
        bool,
        typer.Option("--policy-path", help="print the policy's folder, for lm_eval; run nothing"),
    ] = False,
    limit: Limit = None,
    overrides: Set = [],
    condition: Condition = [],
    seed: Seed = [],
    plugin: PluginFile = [],
) -> None:
    """Run the whole method on a small policy that ships with the package."""
    if policy_path:
        from gapft_harness.demo import policy_path as folder

        typer.echo(folder())
        return
    overrides = as_settings(None, limit, overrides)
    _run(Options("demo", None, None, overrides, condition, seed, plugin), run_dir)


@app.command()
def run(
    recipe: OptionalRecipe = None,
    run_dir: OptionalRunDir = None,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    limit: Limit = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="print settings, stages, what they take; exit with 1 if something is missing",
        ),
    ] = False,
    overrides: Set = [],
    condition: Condition = [],
    seed: Seed = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Go from a recipe to a report; the same command goes on where it stopped."""
    overrides = as_settings(model, limit, overrides)
    choice = Options(recipe, task, model_args, overrides, condition, seed, plugin, include_path)
    if dry_run:
        from gapft_harness.cli.dry_run import NOTHING_MISSING, describe

        said = describe(choice, run_dir)
        typer.echo(said)
        if not said.endswith(f"\n{NOTHING_MISSING}"):
            raise typer.Exit(1)
    else:
        _run(choice, run_dir)


@app.command()
def search(
    run_dir: RunDir,
    recipe: RecipeName = None,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    limit: Limit = None,
    split: Annotated[
        list[str],
        typer.Option(
            "--split",
            metavar="NAME",
            help="only this split (pool, audit, audit/NAME, calibration); repeatable",
        ),
    ] = [],
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard", metavar="I/N", help="only this part of the problems, I/N, e.g. 1/8"
        ),
    ] = None,
    overrides: Set = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Stage 1: one greedy decode and K samples per problem, verified."""
    choice = Options(
        recipe,
        task,
        model_args,
        as_settings(model, limit, overrides),
        plugin_files=plugin,
        include_paths=include_path,
        splits=split,
        shard=shard,
    )
    _stage("search", run_dir, choice)


@app.command()
def merge(
    run_dir: RunDir,
    shard_runs: Annotated[
        list[str],
        typer.Argument(
            metavar="SHARD_RUN", help="run directories that hold shards; none: RUN's own"
        ),
    ] = [],
    plugin: PluginFile = [],
) -> None:
    """Make whole splits of the shards that gapft search --shard searched."""
    from gapft_harness.cli.runs import merge_shards

    merge_shards(run_dir, shard_runs, plugin)


@app.command()
def states(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Stage 2: G, S and U, and the evidence kept for each problem."""
    _stage("states", run_dir, Options(plugin_files=plugin))


@app.command()
def select(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Stage 3: fill every condition's training set under the matched budget."""
    _stage("select", run_dir, Options(plugin_files=plugin))


@app.command()
def train(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Stage 4: train one LoRA adapter per condition and seed."""
    _stage("train", run_dir, Options(plugin_files=plugin))


@app.command()
def scale(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Stage 5: choose every adapter's scale, for recipes that have a section scaling."""
    _stage("scale", run_dir, Options(plugin_files=plugin))


@app.command()
def audit(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Stage 6: decode the audit split greedily with every adapter."""
    _stage("audit", run_dir, Options(plugin_files=plugin))


@app.command()
def report(
    run_dir: RunDir,
    condition: Annotated[
        list[str],
        typer.Option("--condition", metavar="NAME", help="show only these conditions; repeatable"),
    ] = [],
    seed: Annotated[
        list[int],
        typer.Option("--seed", metavar="N", help="show only these seeds; repeatable"),
    ] = [],
    plugin: PluginFile = [],
) -> None:
    """Stage 7: write tables, figures, report.md, index.html, explorer.html and results.json."""
    choice = Options(conditions=condition, seeds=seed, plugin_files=plugin)
    page = _stage("report", run_dir, choice)
    typer.echo(f"report: {page}")


@app.command()
def verify(run_dir: RunDir, plugin: PluginFile = []) -> None:
    """Compute everything that makes arms equal again, from the sealed files; fail if it differs."""
    from gapft_harness.run_directory.mirror import placed
    from gapft_harness.stages.verify import run as verification
    from gapft_harness.study.verify import is_study, verify_study

    with placed(run_dir, writes=False) as (path, _):
        found = (verify_study if is_study(path) else verification.verify)(path, plugin)
    if found.differences:
        count = len(found.differences)
        told = [f"{run_dir}: {count} difference{'s' * (count > 1)}", *found.differences]
        raise GapftError("\n".join([*told, *filter(None, [found.remark])]))
    missing = [f"not yet: {line}" for line in found.missing]
    if not found.checked:
        raise GapftError("\n".join([f"{run_dir}: holds nothing to verify yet", *missing]))
    for line in [*found.checked, *missing]:
        typer.echo(line)
    typer.echo("verified: the arms differ in nothing that the recipe does not declare")


@app.command("scaling-report")
def scaling(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="audited runs, folders or URLs")],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="also write the tables into this folder"),
    ] = None,
) -> None:
    """Compare adapters at their chosen scales, over several runs as environments."""
    from gapft_harness.experiments.scaling.pooled import pool_scaling

    pooled = pool_scaling(runs)
    if output is not None:
        pooled.write(output)
    typer.echo(pooled.text.rstrip())


add_tools(app)


def _run(choice: Options, run_dir: str | None) -> None:
    from gapft_harness.cli.runs import run_recipe
    from gapft_harness.cli.summary import print_summary

    page = run_recipe(choice, run_dir)
    print_summary(page.parent / "results.json", plugin_files=choice.plugin_files)
    typer.echo(f"report: {page}")


def _stage(name: str, run_dir: str, choice: Options) -> Path:
    from gapft_harness.cli.runs import run_stage

    return run_stage(name, run_dir, choice)


def _open_streams() -> None:
    """Those that are closed (``<&- >&-``) lead nowhere; libraries expect that they are there."""
    open_standard_streams()
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def main() -> None:
    """The ``gapft`` command. Exit status 0, 2 for the user's mistake, 1 for a failure, 130."""
    collect_seldom()
    _open_streams()
    try:
        with told(), shown_on_failure():
            app()
    except GapftError as error:
        from gapft_harness.report.rendering.visible import visible

        typer.echo(f"gapft: {visible(str(error))}", err=True)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
