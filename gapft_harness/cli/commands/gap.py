"""``gapft gap``: measure the gap between Pass@1 and Pass@K of a task or of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
)
from gapft_harness.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from gapft_harness.gap.prospects import Plan

#: lm_eval's keys of --gen_kwargs -> recipe keys.
_GEN_KWARGS = {
    "temperature": "search.temperature",
    "top_p": "search.top_p",
    "top_k": "search.top_k",
    "max_gen_toks": "search.max_gen_toks",
    "max_new_tokens": "search.max_gen_toks",
}
#: The recorded model of a sampler that loads none.
_NO_MODEL = "(none)"
#: The folder inside the search's folder for the files that this command writes.
_GAP_FOLDER = "gap"


GROUP = "Measure and compare"
EXAMPLE = "gapft gap gapft_demo --model hf --model-args pretrained=MODEL --limit 50"


def command(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK_OR_RUN",
            help="an lm-eval task, or the folder of a searched run or gap",
        ),
    ] = None,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k", metavar="K", help="samples of each problem; default: 8; a run has its own K"
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="NAME", help="the filter of the task's metric; default: the first"
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="the task's metric that judges responses; default: the first",
        ),
    ] = None,
    pass_at: Annotated[
        float | None,
        typer.Option(
            "--pass-at",
            metavar="X",
            help="for a metric other than 0 or 1: a response passes from X on",
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="NAME",
            help="audit (the task's test split) or pool (its training split)",
        ),
    ] = "audit",
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help="only the first N problems, as in lm_eval"),
    ] = None,
    gen_kwargs: Annotated[
        str | None,
        typer.Option(
            "--gen-kwargs",
            metavar="A=B,...",
            help="settings of the samples: temperature, top_p, ...",
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option("--batch-size", metavar="N", help="as in lm-eval; sets model.args.batch_size"),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="as in lm-eval; sets model.args.device"),
    ] = None,
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", help="as in lm-eval; sets model.chat_template")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output-path",
            "--run-dir",
            metavar="DIR",
            help="the output folder; default: gaps/TASK; for a run: nothing is written",
            parser=parse_folder,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--training-seeds",
            metavar="N",
            help="training seeds to plan with; default: those of the recipe",
        ),
    ] = None,
    items: Annotated[
        int | None,
        typer.Option(
            "--items", metavar="M", help="audit items to plan with; default: those of the search"
        ),
    ] = None,
    discordance: Annotated[
        str,
        typer.Option(
            "--discordance",
            metavar="SHARE",
            help="share of items in which two trained models differ, e.g. 0.1 or 71/500",
        ),
    ] = "331/1367",
    shared: Annotated[
        float,
        typer.Option(
            "--shared",
            metavar="SHARE",
            help="share of the variance of these differences that is common to all seeds",
        ),
    ] = 0.0,
    form: Format = "terminal",
    overrides: Set = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Measure the gap between Pass@K and Pass@1 of a task or a run, and what training can gain."""
    from gapft_harness.cli.runs import is_run

    plan = _build_plan(seeds, items, discordance, shared)
    if target is not None and is_run(target):
        if k is not None:
            raise UserError(f"--k {k}: {target} has been searched with its own K; leave --k out")
        _measure_run(target, plan, out, form)
        return
    if target and task:
        raise UserError(f"{target}, --tasks {task}: expected one task; leave one out")
    task = target or task
    if not task:
        raise UserError("no task: expected a task, e.g. gsm8k, or the folder of a searched run")
    samples = 8 if k is None else k
    if "," in task:
        raise UserError(f"--tasks {task}: expected one task; run the command once per task")
    if split not in ("audit", "pool"):
        raise UserError(f"--split {split}: expected audit or pool")
    if samples < 2:
        raise UserError(f"--k {samples}: expected at least 2; one sample shows no gap")
    settings = [f"search.k={samples}", *_parse_gen_kwargs(gen_kwargs)]
    for key, value in (("batch_size", batch_size), ("device", device)):
        settings += [] if value is None else [f"model.args.{key}={value}"]
    settings += ["model.chat_template=true"] if apply_chat_template else []
    settings += [] if model is None else [f"model.backend={model}"]
    if model == "dummy" and "pretrained" not in (model_args or ""):
        settings.append(f"model.args.pretrained={_NO_MODEL}")
    if limit is not None:  # the same problems as lm_eval's --limit
        settings += [f"data.{split}_limit={limit}", "data.limit_takes=first"]
    if metric is not None or filter is not None:
        metric_name = (metric or "") + (f",{filter}" if filter else "")
        settings.append(f"verifier.params.metric={json.dumps(metric_name)}")
    settings += [] if pass_at is None else [f"verifier.params.pass_at={pass_at}"]
    choice = Options(
        None, task, model_args, [*settings, *overrides],
        plugin_files=plugin, include_paths=include_path, splits=[split], alone=True,
    )  # fmt: skip
    _measure_task(choice, out or Path("gaps", Path(task).stem), split, include_path, plan, form)


def _measure_task(
    choice: Options,
    path: Path,
    split: str,
    include_path: Sequence[str],
    plan: Plan,
    form: Form,
) -> None:
    from gapft_harness.cli.display import print_page
    from gapft_harness.cli.runs import run_stages_alone
    from gapft_harness.gap.measuring import measure_search
    from gapft_harness.gap.page import build_task_page
    from gapft_harness.gap.prospects import advise
    from gapft_harness.outcomes.searches import compute_search
    from gapft_harness.run_directory import layout
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.run_directory.lock import hold_run_lock
    from gapft_harness.stages.integrity.inputs import list_recorded_include_paths
    from gapft_harness.stages.search.states import write_split_states

    run_stages_alone(["search"], path, choice)
    with hold_run_lock(path):
        run = RunDirectory.open(path)
        if not run.is_sealed(layout.states_path(split)):
            write_split_states(str(path), split, choice.plugin_files)
        run.seal(layout.states_path(split))
        folder = path / _GAP_FOLDER
        measured = measure_search(
            run, split, include_path or list_recorded_include_paths(path), folder
        )
        findings = {
            name: compute_search(verdicts, measured.endings[name])
            for name, verdicts in measured.verdicts.items()
        }
        first_findings = {split: next(iter(findings.values()))}
        advice = advise(plan, first_findings, len(run.recipe.seeds))
        page = build_task_page(measured, findings, advice)
        page.write(folder)
    print_page(
        page,
        f"written: {folder / 'gap.html'}, gap.md, results.json, tables/, figures/",
        f"every problem, for a browser: {folder / 'explorer.html'}",
        f"lm_eval's logs, for gapft compare: {folder / 'greedy'}, {folder / 'samples'}",
        form=form,
    )


def _parse_gen_kwargs(text: str | None) -> list[str]:
    """Convert ``--gen_kwargs`` to settings of recipe keys."""
    settings = []
    for part in filter(None, (text or "").split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise UserError(f"--gen_kwargs {part}: expected key=value,..., e.g. temperature=0.6")
        if key == "do_sample":
            continue  # one greedy decode and K samples are always generated
        if key not in _GEN_KWARGS:
            raise UserError(f"--gen_kwargs {part}: {did_you_mean(key, _GEN_KWARGS)}")
        settings.append(f"{_GEN_KWARGS[key]}={value}")
    return settings


def _measure_run(place: str, plan: Plan, out: Path | None, form: Form) -> None:
    """Print the gap of a run's search without changing the run."""
    from gapft_harness.cli.display import print_page
    from gapft_harness.core.files import require_folder
    from gapft_harness.gap.page import build_run_page
    from gapft_harness.gap.prospects import advise
    from gapft_harness.gap.searched import read_run
    from gapft_harness.outcomes.searches import compute_search

    if out is not None:
        require_folder(out)
    run = read_run(Path(place))
    findings = {
        split: compute_search(verdicts, run.endings.get(split))
        for split, verdicts in run.splits.items()
    }
    page = build_run_page(run, findings, advise(plan, findings, len(run.recipe["seeds"])))
    lines = []
    if out is not None:
        page.write(out)
        lines = [f"written: {out / 'gap.html'}, gap.md, results.json, tables/, figures/"]
    print_page(page, *lines, form=form)


def _build_plan(seeds: int | None, items: int | None, discordance: str, shared: float) -> Plan:
    from gapft_harness.gap.prospects import Plan

    for name, value in (("--training-seeds", seeds), ("--items", items)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value}: expected 1 or more")
    if not 0 <= shared <= 1:
        raise UserError(f"--shared {shared:g}: expected a share within 0 and 1")
    return Plan(seeds, items, _parse_share(discordance), shared)


def _parse_share(text: str) -> float:
    """Parse a share above 0: a number, or a fraction of counts."""
    numerator, slash, denominator = text.partition("/")
    try:
        share = float(numerator) / (float(denominator) if slash else 1)
    except (ValueError, ZeroDivisionError):
        share = -1.0
    if not 0 < share <= 1:
        raise UserError(
            f"--discordance {text}: expected a share above 0 and at most 1, such as 0.1 or 71/500"
        )
    return share
