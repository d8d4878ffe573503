"""``gapft export``: training sets for other trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import RunDir


def export(
    run_dir: RunDir,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="trl, axolotl or llama-factory")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="a new folder")],
    condition: Annotated[
        list[str], typer.Option("--condition", metavar="NAME", help="only this one; repeatable")
    ] = [],
    seed: Annotated[
        list[int], typer.Option("--seed", metavar="N", help="only this one; repeatable")
    ] = [],
) -> None:
    """Write training sets as datasets of TRL, LLaMA-Factory or Axolotl, with their budgets."""
    from gapft_harness.exporting.formats import export as exported
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.run_directory.mirror import placed

    with placed(run_dir, writes=False) as (path, _):
        files = exported(RunDirectory.open(path), to, out, condition, seed)
    for file in files:
        typer.echo(file)
