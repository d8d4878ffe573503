"""``gapft import``: use existing responses as the search of a run."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from gapft_harness.cli.options import (
    IncludePath,
    Limit,
    Model,
    ModelArgs,
    Options,
    PluginFile,
    RecipeName,
    RunDir,
    Set,
    TaskName,
    build_settings,
)
from gapft_harness.core.errors import UserError

GROUP = "Exchange"
EXAMPLE = "gapft import runs/mine responses.jsonl --recipe demo"


def command(
    run_dir: RunDir,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="files of responses; with --greedy: of samples"),
    ] = [],
    greedy: Annotated[
        str | None, typer.Option("--greedy", metavar="FILE", help="a file of greedy responses")
    ] = None,
    split: Annotated[
        str,
        typer.Option("--split", metavar="NAME", help="pool, audit, audit/NAME or calibration"),
    ] = "pool",
    judge: Annotated[
        bool,
        typer.Option(
            "--judge", help="judge by the task's verifier; default: use the verdicts of the files"
        ),
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="the field with the verdicts"),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="NAME", help="lm_eval's filter; default: the first in the log"
        ),
    ] = None,
    on: Annotated[
        list[str],
        typer.Option(
            "--on",
            metavar="FIELD",
            help="match rows to problems by this field, or ROW_FIELD=TASK_FIELD; repeatable",
        ),
    ] = [],
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="leave out responses that match no problem")
    ] = False,
    recipe: RecipeName = None,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    limit: Limit = None,
    overrides: Set = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Import responses with verdicts as the search of a split, and compute its states."""
    from gapft_harness.cli.runs import run_stages_alone
    from gapft_harness.importing.job import import_split, require_not_searched, seal_states
    from gapft_harness.importing.rows import ImportChoice

    if not files and not greedy:
        raise UserError("no responses: expected files, as in gapft import RUN FILE ...")
    pairs = [
        (field, task_field or field)
        for field, _, task_field in (text.partition("=") for text in on)
    ]
    choice = ImportChoice(files, greedy, judge, metric, filter, pairs, ignore_unknown)
    require_not_searched(run_dir, split, choice)
    options = Options(
        recipe, task, model_args, build_settings(model, limit, overrides),
        plugin_files=plugin, include_paths=include_path, splits=[split],
        searching=partial(import_split, choice=choice.to_arguments()),
    )  # fmt: skip
    run_stages_alone(["search"], run_dir, options)
    typer.echo(seal_states(run_dir, split, plugin))
