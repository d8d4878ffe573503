"""``gapft store``: list and prune the work that several runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.core.errors import UserError

EXAMPLE = "gapft store runs --prune"


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that contains run folders.")
    ] = Path("runs"),
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Ask, then remove stored work that no run in FOLDER uses."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: do not ask.")] = False,
) -> None:
    """List stored responses, verdicts and adapters with the runs that use them."""
    from gapft_harness.cli.commands.list_ import print_columns
    from gapft_harness.engine.inventory import find_runs, list_stored, remove_stored
    from gapft_harness.engine.store import open_store

    if not folder.is_dir():
        raise UserError(f"{folder}: folder not found; expected one with run folders, such as runs")
    store = open_store(folder / "run")
    works = list_stored(store, find_runs(folder))
    if not works:
        typer.echo(f"{store.root}: the store is empty")
        return
    print_columns(
        [
            (w.description, w.count_text, _format_size(w.size), ", ".join(w.users) or "no run")
            for w in works
        ]
    )
    unused = [work for work in works if not work.users]
    size = _format_size(sum(work.size for work in unused))
    if not prune:
        typer.echo(f"{store.root}: no run in {folder} uses {size} of it")
        return
    if not unused:
        typer.echo(f"{store.root}: nothing to remove; runs in {folder} use all of it")
        return
    question = (
        f"Remove {len(unused)} of {len(works)} entries, {size}, that no run in {folder} uses?"
    )
    if not yes and not typer.confirm(question, default=False, err=True):
        raise UserError("--prune: not confirmed; nothing was removed")
    remove_stored(unused)
    typer.echo(f"removed {size}")


def _format_size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
