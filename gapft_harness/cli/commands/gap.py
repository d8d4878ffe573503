"""``gapft gap``: measure the gap between Pass@1 and Pass@K of a task or of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from gapft_harness.cli.options import (
    Form,
    Format,
    IncludePath,
    Model,
    ModelArgs,
    Options,
    PluginFile,
    Set,
    TaskName,
    parse_folder,
    refuse_given,
)
from gapft_harness.core.errors import UserError

EXAMPLE = "gapft gap gapft_demo --model hf --model-args pretrained=MODEL --limit 50"
#: The recorded model of a sampler that loads none.
_NO_MODEL = "(none)"
#: The folder inside the search's folder for the files that this command writes.
_GAP_FOLDER = "gap"


def command(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK_OR_RUN", help="An lm-eval task, or the folder of a searched run or gap."
        ),
    ] = None,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    k: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="Samples of each problem; default: 8; a run has its own K.", min=2
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The filter of the task's metric; default: the first."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The task's metric that judges responses; default: the first."
        ),
    ] = None,
    split: Annotated[
        Literal["audit", "pool"],
        typer.Option(help="audit (the task's test split) or pool (its training split)."),
    ] = "audit",
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Only the first N problems, as in lm_eval."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The output folder; default: gaps/TASK; for a run: nothing is written.",
            parser=parse_folder,
        ),
    ] = None,
    form: Format = "terminal",
    overrides: Set = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Measure the gap between Pass@K and Pass@1 of a task or a run, and what training can gain."""
    from gapft_harness.cli.runs import is_run

    if target is not None and is_run(target):
        refused = {
            "--task": task, "--model": model, "--model-args": model_args, "--k": k,
            "--limit": limit, "--metric": metric, "--filter": filter, "--set": overrides,
            "--include-path": include_path,
        }  # fmt: skip
        refuse_given(refused, f"{target} has been searched with its own settings; leave this out")
        _measure_run(target, out, plugin, form)
        return
    if target and task:
        raise UserError(f"{target}, --task {task}: expected one task; leave one out")
    task = target or task
    if not task:
        raise UserError("no task: expected a task, e.g. gsm8k, or the folder of a searched run")
    if "," in task:
        raise UserError(f"--task {task}: expected one task; run the command once per task")
    settings = [f"search.k={8 if k is None else k}"]
    if model == "dummy" and "pretrained" not in (model_args or ""):
        settings.append(f"model.args.pretrained={_NO_MODEL}")
    if limit is not None:  # the same problems as lm_eval's --limit
        settings += [f"data.{split}_limit={limit}", "data.limit_takes=first"]
    if metric is not None or filter is not None:
        metric_name = (metric or "") + (f",{filter}" if filter else "")
        settings.append(f"verifier.params.metric={json.dumps(metric_name)}")
    options = Options(
        task=task,
        model=model,
        model_args=model_args,
        overrides=[*settings, *overrides],
        plugin_files=plugin,
        include_paths=include_path,
        splits=[split],
        alone=True,
    )
    _measure_task(options, out or Path("gaps", Path(task).stem), form)


def _measure_task(
    options: Options,
    path: Path,
    form: Form,
) -> None:
    from gapft_harness.cli.display import print_page
    from gapft_harness.cli.runs import run_stages_alone
    from gapft_harness.gap.measuring import measure_search
    from gapft_harness.gap.page import build_page
    from gapft_harness.gap.prospects import advise
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.run_directory.directory import RunDirectory, list_recorded_include_paths
    from gapft_harness.run_directory.lock import hold_run_lock

    (split,) = options.splits
    for stage in ("search", "states"):
        run_stages_alone([stage], path, options)
    with hold_run_lock(path):
        run = RunDirectory.open(path)
        folder = path / _GAP_FOLDER
        search = measure_search(
            run,
            split,
            options.include_paths or list_recorded_include_paths(path),
            load_plugins(options.plugin_files),
            folder,
        )
        findings = search.compute_findings()
        advice = advise({split: findings[search.chosen]}, len(run.recipe.seeds))
        page = build_page(search, findings, advice)
        page.write(folder)
    print_page(
        page,
        f"written: {folder / 'gap.html'}, gap.md, results.json, tables/, figures/",
        f"every problem, for a browser: {folder / 'explorer.html'}",
        f"lm_eval's logs, for gapft compare: {folder / 'greedy'}, {folder / 'samples'}",
        form=form,
    )


def _measure_run(place: str, out: Path | None, plugin: Sequence[str], form: Form) -> None:
    """Print the gap of a run's search without changing the run."""
    from gapft_harness.cli.display import print_page
    from gapft_harness.core.files import require_folder
    from gapft_harness.gap.page import build_page
    from gapft_harness.gap.prospects import advise
    from gapft_harness.gap.searched import read_search
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.run_directory.directory import RunDirectory

    if out is not None:
        require_folder(out)
    run = RunDirectory.open(place)
    search = read_search(run, load_plugins(plugin))
    findings = search.compute_findings()
    page = build_page(search, findings, advise(findings, len(run.recipe.seeds)))
    lines = []
    if out is not None:
        page.write(out)
        lines = [f"written: {out / 'gap.html'}, gap.md, results.json, tables/, figures/"]
    print_page(page, *lines, form=form)
