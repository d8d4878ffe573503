"""``gapft forecast``: what a search tells before anything is trained."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import RunDir
from gapft_harness.core.errors import UserError


def forecast(
    run_dir: RunDir,
    k: Annotated[
        list[int],
        typer.Option("--k", metavar="K", help="samples to forecast for; repeatable"),
    ] = [64],
    seeds: Annotated[
        int | None,
        typer.Option("--training-seeds", metavar="N", help="default: the recipe's"),
    ] = None,
    items: Annotated[
        int | None, typer.Option("--items", metavar="M", help="audit items; default: the run's")
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
            help="of these differences' variance, what comes back under every seed",
        ),
    ] = 0.0,
    details: Annotated[
        bool, typer.Option("--details", help="print its tables, costs and assumptions too")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="write forecast.json and forecast.md there"),
    ] = None,
) -> None:
    """Say from a search alone what more samples would find, and whether training can pay."""
    from rich.console import Console

    from gapft_harness.compare.terminal import show
    from gapft_harness.forecast.files import write
    from gapft_harness.forecast.findings import Choice
    from gapft_harness.forecast.findings import forecast as computed
    from gapft_harness.forecast.page import sections
    from gapft_harness.forecast.reading import read_run
    from gapft_harness.run_directory.mirror import placed

    for name, value in (("--k", min(k)), ("--training-seeds", seeds), ("--items", items)):
        if value is not None and value < 1:
            raise UserError(f"{name} {value}: expected 1 or more")
    if not 0 <= shared <= 1:
        raise UserError(f"--shared {shared:g}: expected a share within 0 and 1")
    choice = Choice(tuple(k), seeds, items, _share(discordance), shared)
    with placed(run_dir, writes=False) as (path, _):
        found = computed(read_run(path), choice)
    if out is not None:
        write(found, out)
    with contextlib.suppress(BrokenPipeError, SystemExit):  # who reads may stop early
        told = sections(found)
        show(told if details else told[:1], Console(highlight=False))
        if out is not None:
            typer.echo(f"written: {out / 'forecast.md'}, forecast.json")
        elif not details:
            typer.echo("its tables, costs and assumptions: --details, or --out DIR")


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
