"""``gapft store``: what is kept for several runs, and removing what none of them uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapft_harness.core.errors import UserError

GROUP = "Look around"
EXAMPLE = "gapft store runs --prune"


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="the folder with run folders")
    ] = Path("runs"),
    prune: Annotated[
        bool, typer.Option("--prune", help="remove what no run in FOLDER uses, after asking")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="prune without asking")] = False,
) -> None:
    """List stored responses, verdicts and adapters with the runs that use them."""
    from gapft_harness.cli.commands.list_ import columns
    from gapft_harness.store.inventory import list_groups, remove, runs_in
    from gapft_harness.store.store import Store

    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; expected one with run folders, such as runs")
    store = Store.beside(folder / "run")
    groups = list_groups(store, runs_in(folder))
    if not groups:
        typer.echo(f"{store.root}: nothing is stored")
        return
    rows = [(of.what, of.count, _size(of.size), ", ".join(of.users) or "no run") for of in groups]
    typer.echo(columns(rows))
    unused = [group for group in groups if not group.users]
    size = _size(sum(group.size for group in unused))
    if not prune:
        typer.echo(f"{store.root}: {len(groups)} groups; no run in {folder} uses {size} of it")
        return
    if not unused:
        typer.echo(f"every group is used by a run in {folder}: nothing to remove")
        return
    asked = f"Remove {len(unused)} groups, {size}, that no run in {folder} uses?"
    if not yes and not typer.confirm(asked, default=False, err=True):
        raise UserError("nothing was removed")
    remove(unused)
    typer.echo(f"removed {size}")


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
