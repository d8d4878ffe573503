"""``gapft import``: responses that are there already, as the search of a run."""

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
    as_settings,
)
from gapft_harness.core.errors import UserError

GROUP = "Exchange"
EXAMPLE = "gapft import runs/mine responses.jsonl --recipe demo"


def command(
    run_dir: RunDir,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="responses; with --greedy, samples alone")
    ] = [],
    greedy: Annotated[
        str | None, typer.Option("--greedy", metavar="FILE", help="the greedy responses")
    ] = None,
    split: Annotated[
        str,
        typer.Option("--split", metavar="NAME", help="pool, audit, audit/NAME or calibration"),
    ] = "pool",
    judge: Annotated[
        bool, typer.Option("--judge", help="by the task's verifier; else the files' verdicts stand")
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="the field that says what passed"),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option("--filter", metavar="NAME", help="of lm_eval's logs; default: the first"),
    ] = None,
    on: Annotated[
        list[str],
        typer.Option(
            "--on",
            metavar="FIELD",
            help="join by this field of documents, or ROW_FIELD=TASK_FIELD; repeatable",
        ),
    ] = [],
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="leave out what answers no problem")
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
    """Take responses with verdicts as the search of a split, and find its states."""
    from gapft_harness.cli.runs import run_stages_alone
    from gapft_harness.importing.job import import_split, require_free, state
    from gapft_harness.importing.rows import ImportChoice

    if not files and not greedy:
        raise UserError("give files of responses: gapft import RUN FILE ...")
    pairs = [(field, of or field) for field, _, of in (each.partition("=") for each in on)]
    choice = ImportChoice(files, greedy, judge, metric, filter, pairs, ignore_unknown)
    require_free(run_dir, split, choice)
    options = Options(
        recipe, task, model_args, as_settings(model, limit, overrides),
        plugin_files=plugin, include_paths=include_path, splits=[split],
        searching=partial(import_split, choice=choice.arguments()),
    )  # fmt: skip
    run_stages_alone(["search"], run_dir, options)
    typer.echo(state(run_dir, split, plugin))
