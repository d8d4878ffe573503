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
    from gapft_harness.store.inventory import find_runs, list_groups, remove_groups
    from gapft_harness.store.store import Store

    if not folder.is_dir():
        raise UserError(f"{folder}: folder not found; expected one with run folders, such as runs")
    store = Store.for_run(folder / "run")
    groups = list_groups(store, find_runs(folder))
    if not groups:
        typer.echo(f"{store.root}: the store is empty")
        return
    print_columns(
        [
            (g.description, g.count_text, _format_size(g.size), ", ".join(g.users) or "no run")
            for g in groups
        ]
    )
    unused = [group for group in groups if not group.users]
    size = _format_size(sum(group.size for group in unused))
    if not prune:
        typer.echo(f"{store.root}: {len(groups)} groups; no run in {folder} uses {size} of it")
        return
    if not unused:
        typer.echo(f"{store.root}: nothing to remove; a run in {folder} uses each group")
        return
    question = f"Remove {len(unused)} groups, {size}, that no run in {folder} uses?"
    if not yes and not typer.confirm(question, default=False, err=True):
        raise UserError("--prune: not confirmed; nothing was removed")
    remove_groups(unused)
    typer.echo(f"removed {size}")


def _format_size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
