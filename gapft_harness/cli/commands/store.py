"""``gapft store``: list, extend and prune the work that several runs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapft_harness.cli.options import PluginFile
from gapft_harness.core.errors import UserError

if TYPE_CHECKING:
    from gapft_harness.store.store import Store

GROUP = "Look around"
EXAMPLE = "gapft store runs --prune"


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="the folder that contains run folders")
    ] = Path("runs"),
    prune: Annotated[
        bool,
        typer.Option("--prune", help="ask, then remove stored work that no run in FOLDER uses"),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="with --prune: do not ask")] = False,
    add: Annotated[
        list[Path],
        typer.Option("--add", metavar="RUN", help="verify a run and store its work; repeatable"),
    ] = [],
    plugin: PluginFile = [],
) -> None:
    """List stored responses, verdicts and adapters with the runs that use them."""
    from gapft_harness.cli.commands.list_ import format_columns
    from gapft_harness.store.inventory import find_runs, list_groups, remove_groups
    from gapft_harness.store.store import Store

    if not folder.is_dir() and not add:
        raise UserError(
            f"{folder}: folder not found; expected one that contains run folders, such as runs"
        )
    store = Store.for_run(folder / "run")
    for run in add:
        _add_run(run, store, plugin)
    if add:
        return
    groups = list_groups(store, find_runs(folder))
    if not groups:
        typer.echo(f"{store.root}: the store is empty")
        return
    rows = [
        (g.description, g.count_text, _format_size(g.size), ", ".join(g.users) or "no run")
        for g in groups
    ]
    typer.echo(format_columns(rows))
    unused_groups = [group for group in groups if not group.users]
    size = _format_size(sum(group.size for group in unused_groups))
    if not prune:
        typer.echo(f"{store.root}: {len(groups)} groups; no run in {folder} uses {size} of it")
        return
    if not unused_groups:
        typer.echo(f"{store.root}: nothing to remove; a run in {folder} uses each group")
        return
    question = f"Remove {len(unused_groups)} groups, {size}, that no run in {folder} uses?"
    if not yes and not typer.confirm(question, default=False, err=True):
        raise UserError("--prune: not confirmed; nothing was removed")
    remove_groups(unused_groups)
    typer.echo(f"removed {size}")


def _add_run(run: Path, store: Store, plugin_files: list[str]) -> None:
    """Add a run's work to a store, and print the added and the omitted work."""
    from gapft_harness.cli.display import Display
    from gapft_harness.stages.adding import add_run

    display = Display()
    with display:
        added = add_run(run, store, plugin_files, display.report_progress)
    typer.echo(
        f"{run}: added {added.responses:,} responses, {added.verdicts:,} verdicts and "
        f"{added.adapters:,} adapters to {store.root}"
    )
    for line in added.left_out:
        typer.echo(f"left out: {line}")


def _format_size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
