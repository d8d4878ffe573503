"""Print sections on a terminal. A model's text cannot move the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.presentation.content import Section, Table
from gapft_harness.presentation.visible import make_visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Drawn

#: Wider than any table.
_UNBOUNDED = 10_000


def print_sections(sections: Sequence[Section], console: Console) -> None:
    """Print sections in order; folded tables and figures are on the page only."""
    for section in sections:
        if section.title:
            console.print(f"\n{_join_lines(section.title)}", style="bold", markup=False)
        for warning in section.warnings:
            console.print(f"warning: {_join_lines(warning)}", style="yellow", markup=False)
        for paragraph in section.text:
            console.print(_join_lines(paragraph), markup=False)
        for table in section.tables:
            if table.titled and not table.folded:
                _print_table(table, console)


def _print_table(table: Table, console: Console) -> None:
    """Print a table; texts are wrapped, and a narrow console wraps lines: no number is cut."""
    drawn = _draw_table(table)
    width = console.width
    unbounded = console.options.update(width=_UNBOUNDED)
    console.width = max(width, drawn.__rich_measure__(console, unbounded).minimum)
    try:
        console.print(drawn)
    finally:
        console.width = width
    if table.note:
        console.print(_join_lines(table.note), style="dim", markup=False)


def _draw_table(table: Table) -> Drawn:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False)
    columns = table.titled
    for column in columns:
        drawn.add_column(
            Text(_join_lines(column.title or "")),
            justify="left" if column.is_word else "right",
            overflow="fold",
            no_wrap=not column.is_word,
        )
    for row in table.rows:
        drawn.add_row(*(Text(_join_lines(column.format_cell(row))) for column in columns))
    return drawn


def _join_lines(text: str) -> str:
    """Put a text on one line, so that it cannot imitate a line of the program."""
    return " ".join(replace_text_surrogates(make_visible(text)).split())
