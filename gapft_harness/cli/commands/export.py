"""``gapft export``: write the content of a run in formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import RunDir, parse_folder

EXAMPLE = "gapft export runs/demo --to dataset --out evidence"


def command(
    run_dir: RunDir,
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="trl: training sets as JSON lines; dataset: every response with its verdict and "
            "the solve rate of its problem; merged: a model folder with an arm's adapter.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new folder.", parser=parse_folder)],
    arm: Annotated[
        str, typer.Option(metavar="ARM", help="Only with --to merged: the arm, e.g. gapft-seed13.")
    ] = "",
) -> None:
    """Write a run's training sets, responses or models in formats of other programs."""
    from gapft_harness.exporting.kinds import export
    from gapft_harness.run_directory.directory import RunDirectory

    def report_line(line: str) -> None:
        typer.echo(f"note: {line}", err=True)

    for file in export(RunDirectory.open(run_dir), to, out, arm, report_line):
        typer.echo(file)
