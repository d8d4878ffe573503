"""``gapft gap``: greedy and K samples of any generation task, and what lies between them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import (
    IncludePath,
    Model,
    ModelArgs,
    Options,
    PluginFile,
    Set,
    TaskName,
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


def gap(
    task: TaskName = None,
    model: Model = None,
    model_args: ModelArgs = None,
    k: Annotated[int, typer.Option("--k", metavar="K", help="samples of each problem")] = 8,
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
        str | None,
        typer.Option(
            "--out", "--output-path", "--run-dir", metavar="DIR", help="default gaps/TASK"
        ),
    ] = None,
    overrides: Set = [],
    plugin: PluginFile = [],
    include_path: IncludePath = [],
) -> None:
    """Measure the gap between Pass@K and Pass@1 of any generation task, before any training."""
    if not task:
        raise UserError("give a task: --tasks NAME, e.g. gsm8k")
    if "," in task:
        raise UserError(f"--tasks {task}: expected one task; measure each in a folder of its own")
    if split not in ("audit", "pool"):
        raise UserError(f"--split {split}: expected audit or pool")
    if k < 2:
        raise UserError(f"--k {k}: expected at least 2: one sample has no gap")
    settings = [f"search.k={k}", *_sampling(gen_kwargs)]
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
    _measure(choice, out or f"gaps/{Path(task).stem}", split, include_path)


def _measure(choice: Options, place: str, split: str, include_path: Sequence[str]) -> None:
    from rich.console import Console

    from gapft_harness.cli.runs import run_stage
    from gapft_harness.compare.terminal import show
    from gapft_harness.gap.files import write
    from gapft_harness.gap.findings import find
    from gapft_harness.gap.measuring import measure
    from gapft_harness.gap.page import sections
    from gapft_harness.run_directory import layout
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.run_directory.lock import hold
    from gapft_harness.run_directory.mirror import is_url
    from gapft_harness.stages.foundation.foundation import searched_in
    from gapft_harness.stages.search.states import partition

    if is_url(place):
        raise UserError(f"--out {place}: expected a folder on this machine")
    run_stage("search", place, choice)
    path = Path(place)
    with hold(path):
        run = RunDirectory.open(path)
        if not run.is_sealed(layout.states(split)):
            partition(place, split, choice.plugin_files)
        run.seal(layout.states(split))
        folder = path / _FOLDER
        measured = measure(run, split, include_path or searched_in(path), folder)
        found = {name: find(of, measured.k) for name, of in measured.decisions.items()}
        write(measured, found, folder)
    with contextlib.suppress(BrokenPipeError, SystemExit):  # who reads may stop early
        show(sections(measured, found), Console(highlight=False))
        typer.echo(f"written: {folder / 'gap.html'}, gap.md, results.json, gap.csv, items.csv")
        typer.echo(f"every problem, for a browser: {folder / 'explorer.html'}")
        typer.echo(f"lm_eval's logs, for gapft compare: {folder / 'greedy'}, {folder / 'samples'}")


def _sampling(text: str | None) -> list[str]:
    """``--gen_kwargs`` as recipe keys.

    Raises:
        UserError: a key that has no place in a search, or a part that is no key=value.
    """
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
