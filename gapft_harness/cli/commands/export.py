"""``gapft export``: write the content of a run in formats of other programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.cli.options import PluginFile, RunDir, parse_folder

GROUP = "Exchange"
EXAMPLE = "gapft export runs/demo --to dataset --out evidence"


def command(
    run_dir: RunDir,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="NAME",
            help="trl, axolotl or llama-factory: training sets; verl, prime-rl, nemo-gym "
            "or trl-grpo: prompts of the pool for online training; trl-dpo: pairs of a sample "
            "that passed and one that failed; dataset: the evidence; "
            "adapters: adapters with model cards; merged: a model folder with an arm's adapter in "
            "its weights; tables: the report's tables",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="a new folder", parser=parse_folder)
    ],
    condition: Annotated[
        list[str],
        typer.Option("--condition", metavar="NAME", help="only this condition; repeatable"),
    ] = [],
    seed: Annotated[
        list[int], typer.Option("--seed", metavar="N", help="only this training seed; repeatable")
    ] = [],
    arm: Annotated[
        str, typer.Option("--arm", metavar="ARM", help="for merged: e.g. gapft-seed13")
    ] = "",
    states: Annotated[
        str,
        typer.Option(
            "--states", metavar="S,U", help="for prompts and pairs: only problems in these states"
        ),
    ] = "",
    solve_rate: Annotated[
        str | None,
        typer.Option(
            "--solve-rate",
            metavar="LOW:HIGH",
            help="for training sets, prompts and pairs: only problems of which this share of the "
            "samples passed, e.g. .2:.8; bounds included",
        ),
    ] = None,
    plugin: PluginFile = [],
) -> None:
    """Write a run's training sets, prompts, evidence or tables in formats of other programs."""
    from gapft_harness.exporting.kinds import ExportChoice, export_study
    from gapft_harness.exporting.kinds import export as exported
    from gapft_harness.exporting.problem_choice import parse_solve_rate_band
    from gapft_harness.run_directory.directory import RunDirectory
    from gapft_harness.study.verify import is_study

    chosen_states = [state.strip() for state in states.split(",")] if states else []
    band = None if solve_rate is None else parse_solve_rate_band(solve_rate)
    request = ExportChoice(out, condition, seed, chosen_states, plugin, band, arm)
    if is_study(run_dir):
        from gapft_harness.study.document import read_sections

        files = export_study(lambda: read_sections(run_dir), to, request)
    else:
        files = exported(RunDirectory.open(run_dir), to, request)
    for line in _describe_folders(files):
        typer.echo(line)


def _describe_folders(files: Sequence[Path]) -> Iterator[str]:
    """Describe written files: a line per folder, or the path of its only file."""
    folders: dict[Path, list[Path]] = {}
    for file in files:
        folders.setdefault(file.parent, []).append(file)
    for folder, folder_files in folders.items():
        yield (
            str(folder_files[0])
            if len(folder_files) == 1
            else f"{folder}/ ({len(folder_files)} files)"
        )
