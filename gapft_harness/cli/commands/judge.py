"""``gapft judge``: programs in the sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

GROUP = "Measure and compare"
EXAMPLE = "gapft judge programs.jsonl"


def command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="programs with tests, one JSON record a line; - is standard input"
        ),
    ],
    tier: Annotated[
        str,
        typer.Option(
            "--tier", metavar="NAME", help="auto, namespaces or landlock: how programs are confined"
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", help="programs side by side; default: the CPUs"),
    ] = None,
    preload: Annotated[
        list[str],
        typer.Option(
            "--preload",
            metavar="NAME",
            help="a package that programs may import besides the standard library; repeatable; "
            '"" for none',
        ),
    ] = ["numpy"],
    prelude: Annotated[
        str,
        typer.Option(
            "--prelude",
            metavar="NAME",
            help="names that programs know without import: none, or lcb for LiveCodeBench's list",
        ),
    ] = "none",
) -> None:
    """Run programs in the sandbox against their tests; print a line of JSON each."""
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
            progress=lambda done, total: display.job("judge", done, total),
        ):
            typer.echo(line)
