"""``gapft gap``: what lies between one answer and K, of a task or of a run's search."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

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
    as_folder,
)
from gapft_harness.core.errors import UserError, did_you_mean

#: lm_eval's keys of --gen_kwargs -> recipe keys.
_GEN_KWARGS = {
    "temperature": "search.temperature",
    "top_p": "search.top_p",
    "top_k": "search.top_k",
    "max_gen_toks": "search.max_gen_toks",
    "max_new_tokens": "search.max_gen_toks",
}
#: What a sampler without a model is said to have loaded.
_NO_MODEL = "(none)"
#: The folder of a search that holds what this command makes of it.
_FOLDER = "gap"


GROUP = "Measure and compare"
EXAMPLE = "gapft gap gapft_demo --model hf --model-args pretrained=MODEL --limit 50"


def command(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK_OR_RUN",
            help="lm-eval task to search; or a searched run's folder, to tell what more "
            "samples and training would give",
        ),
    ] = None,
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    k: Annotated[
        list[int],
        typer.Option(
            "--k",
            metavar="K",
            help="samples of each problem, 8; of a run: samples to forecast for, 64, repeatable",
        ),
    ] = [],
    filter: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="NAME", help="the task's filter to judge by; default: its first"
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", metavar="NAME", help="the task's metric to judge by; default: its first"
        ),
    ] = None,
    pass_at: Annotated[
        float | None,
        typer.Option(
            "--pass-at", metavar="X", help="for a metric that is not 0 or 1: passes from X on"
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            "--split", metavar="NAME", help="audit (its test split) or pool (its training split)"
        ),
    ] = "audit",
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", help="only the first N problems, as lm_eval"),
    ] = None,
    gen_kwargs: Annotated[
        str | None,
        typer.Option(
            "--gen-kwargs", metavar="A=B,...", help="of the samples: temperature, top_p, ..."
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        typer.Option("--batch-size", metavar="N", help="as lm-eval's; sets model.args.batch_size"),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help="as lm-eval's; sets model.args.device"),
    ] = None,
    apply_chat_template: Annotated[
        bool, typer.Option("--apply-chat-template", help="as lm-eval's; sets model.chat_template")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output-path",
            "--run-dir",
            metavar="DIR",
            help="default gaps/TASK; of a run: none",
            parser=as_folder,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--training-seeds", metavar="N", help="of a run: default the recipe's"),
    ] = None,
    items: Annotated[
        int | None,
        typer.Option("--items", metavar="M", help="of a run: audit items; default its own"),
    ] = None,
    discordance: Annotated[
        str,
        typer.Option(
            "--discordance",
            metavar="SHARE",
            help="of a run: share of items in which two trained models differ, e.g. 0.1 or 71/500",
        ),
    ] = "331/1367",
    shared: Annotated[
        float,
        typer.Option(
            "--shared",
            metavar="SHARE",
            help="of a run: of these differences' variance, what comes back under every seed",
        ),
    ] = 0.0,
    details: Annotated[
        bool,
        typer.Option("--details", help="of a run: print its tables, costs and assumptions too"),
    ] = False,
    form: Format = "terminal",
    overrides: Set = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Measure the gap between Pass@K and Pass@1 of a task; of a run, say what training can gain."""
    from gapft_harness.cli.runs import is_run

    if target is not None and is_run(target):
        _forecast(target, k or [64], (seeds, items), discordance, shared, details, out, form)
        return
    if target and task:
        raise UserError(f"{target}, --tasks {task}: expected one of them")
    task = target or task
    if not task:
        raise UserError("give a task, e.g. gsm8k, or a searched run's folder")
    if len(k) > 1:
        raise UserError(f"--k {' --k '.join(map(str, k))}: a task is searched with one K")
    samples = k[0] if k else 8
    if "," in task:
        raise UserError(f"--tasks {task}: expected one task; measure each in a folder of its own")
    if split not in ("audit", "pool"):
        raise UserError(f"--split {split}: expected audit or pool")
    if samples < 2:
        raise UserError(f"--k {samples}: expected at least 2: one sample has no gap")
    settings = [f"search.k={samples}", *_sampling(gen_kwargs)]
    for key, value in (("batch_size", batch_size), ("device", device)):
        settings += [] if value is None else [f"model.args.{key}={value}"]
    settings += ["model.chat_template=true"] if apply_chat_template else []
    settings += [] if model is None else [f"model.backend={model}"]
    if model == "dummy" and "pretrained" not in (model_args or ""):
        settings.append(f"model.args.pretrained={_NO_MODEL}")
    if limit is not None:  # those that lm_eval takes
        settings += [f"data.{split}_limit={limit}", "data.limit_takes=first"]
    if metric is not None or filter is not None:
        named = (metric or "") + (f",{filter}" if filter else "")
        settings.append(f"verifier.params.metric={json.dumps(named)}")
    settings += [] if pass_at is None else [f"verifier.params.pass_at={pass_at}"]
    choice = Options(
        None, task, model_args, [*settings, *overrides],
        plugin_files=plugin, include_paths=include_path, splits=[split], alone=True,
    )  # fmt: skip
    _measure(choice, out or Path("gaps", Path(task).stem), split, include_path, form)


def _measure(
    choice: Options, path: Path, split: str, include_path: Sequence[str], form: Form
) -> None:
    from gapft_harness.cli.display import tell
    from gapft_harness.cli.runs import run_stages_alone
    from gapft_harness.gap.document import document
    from gapft_harness.gap.findings import find
    from gapft_harness.gap.measuring import measure
    from gapft_harness.run_directory import layout
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.run_directory.lock import hold
    from gapft_harness.stages.integrity.rests_on import searched_in
    from gapft_harness.stages.search.states import partition

    run_stages_alone(["search"], path, choice)
    with hold(path):
        run = RunDirectory.open(path)
        if not run.is_sealed(layout.states(split)):
            partition(str(path), split, choice.plugin_files)
        run.seal(layout.states(split))
        folder = path / _FOLDER
        measured = measure(run, split, include_path or searched_in(path), folder)
        found = {name: find(of, measured.errors[name]) for name, of in measured.verdicts.items()}
        told = document(measured, found)
        told.write(folder)
    tell(
        told,
        f"written: {folder / 'gap.html'}, gap.md, results.json, gap.csv, items.csv",
        f"every problem, for a browser: {folder / 'explorer.html'}",
        f"lm_eval's logs, for gapft compare: {folder / 'greedy'}, {folder / 'samples'}",
        form=form,
    )


def _sampling(text: str | None) -> list[str]:
    """``--gen_kwargs`` as recipe keys."""
    settings = []
    for part in filter(None, (text or "").split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            raise UserError(f"--gen_kwargs {part}: expected key=value,..., e.g. temperature=0.6")
        if key == "do_sample":
            continue  # one greedy decode and K samples are made anyway
        if key not in _GEN_KWARGS:
            raise UserError(f"--gen_kwargs {part}: {did_you_mean(key, _GEN_KWARGS)}")
        settings.append(f"{_GEN_KWARGS[key]}={value}")
    return settings


def _forecast(
    place: str,
    k: list[int],
    sizes: tuple[int | None, int | None],
    discordance: str,
    shared: float,
    details: bool,
    out: Path | None,
    form: Form,
) -> None:
    """What a run's search tells before anything is trained."""
    from gapft_harness.cli.display import tell
    from gapft_harness.core.files import require_folder
    from gapft_harness.forecast.document import document
    from gapft_harness.forecast.findings import ForecastChoice
    from gapft_harness.forecast.findings import forecast as computed
    from gapft_harness.forecast.reading import read_run

    seeds, items = sizes
    for name, value in (("--k", min(k)), ("--training-seeds", seeds), ("--items", items)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value}: expected 1 or more")
    if not 0 <= shared <= 1:
        raise UserError(f"--shared {shared:g}: expected a share within 0 and 1")
    if out is not None:
        require_folder(out)
    choice = ForecastChoice(tuple(k), seeds, items, _share(discordance), shared)
    told = document(computed(read_run(Path(place)), choice))
    lines = []
    if out is not None:
        told.write(out)
        lines = [f"written: {out / 'forecast.md'}, forecast.json"]
    elif not details:
        lines = ["its tables, costs and assumptions: --details, or --out DIR"]
    shown = told.sections if details or form != "terminal" else told.sections[:1]
    tell(replace(told, sections=shown), *lines, form=form)


def _share(text: str) -> float:
    """A share above 0, as a number or a fraction of counts."""
    above, slash, below = text.partition("/")
    try:
        found = float(above) / (float(below) if slash else 1)
    except (ValueError, ZeroDivisionError):
        found = -1.0
    if not 0 < found <= 1:
        raise UserError(
            f"--discordance {text}: expected a share above 0 and at most 1, such as 0.1 or 71/500"
        )
    return found
