"""``gapft judge``: run programs in the sandbox against their tests."""

from __future__ import annotations

from typing import Annotated

import typer

GROUP = "Measure and compare"
EXAMPLE = "gapft judge programs.jsonl"


def command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="programs with tests, one JSON record per line; - is standard input",
        ),
    ],
    tier: Annotated[
        str,
        typer.Option(
            "--tier", metavar="NAME", help="how programs are confined: auto, namespaces or landlock"
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", help="programs in parallel; default: the number of CPUs"
        ),
    ] = None,
    preload: Annotated[
        list[str],
        typer.Option(
            "--preload",
            metavar="NAME",
            help="a package besides the standard library that programs can import; repeatable; "
            '"" for none',
        ),
    ] = ["numpy"],
    prelude: Annotated[
        str,
        typer.Option(
            "--prelude",
            metavar="NAME",
            help="names that programs can use without import: none, or lcb (LiveCodeBench's list)",
        ),
    ] = "none",
) -> None:
    """Run programs in the sandbox against their tests; print one line of JSON for each."""
    from gapft_harness.cli.display import Display
    from gapft_harness.verification.program_file import judge_file

    display = Display()
    with display:
        for line in judge_file(
            file,
            tier=tier,  # type: ignore[arg-type]
            workers=workers,
            preload=list(filter(None, preload)),
            prelude=prelude,  # type: ignore[arg-type]
            progress=lambda done, total: display.report_progress("judge", done, total),
        ):
            typer.echo(line)
