"""Print blocks on a terminal. A model's text cannot move the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text as Shown

from gapft_harness.core.text import whole_text
from gapft_harness.report.rendering.blocks import (
    Block,
    Bullets,
    Case,
    Cases,
    Rank,
    Section,
    Table,
    Text,
)
from gapft_harness.report.rendering.visible import shortened, visible

#: Characters that the terminal shows of a text.
_LONGEST = 110
#: Characters of a name in a table on one line; longer names are wrapped.
_LABEL = 40
#: Styles by a cell's rank.
_STYLES: Mapping[Rank | None, str] = {None: "", "best": "bold", "second": "underline"}
#: Wider than any table.
_UNBOUNDED = 10_000


def show(sections: Sequence[Section], console: Console) -> None:
    """Print sections in order."""
    for section in sections:
        if section.title:
            console.print(f"\n{_seen(section.title)}", style="bold", markup=False)
        for block in section.blocks:
            _show(block, console)


def _show(block: Block, console: Console) -> None:
    match block:
        case Text():
            style = "yellow" if block.role == "warning" else None
            console.print(_seen(block.line), style=style, markup=False)
        case Bullets(items):
            for item in items:
                console.print(f"  {_seen(item)}", style="dim", markup=False)
        case Table():
            drawn = _table(block)
            if _width(drawn, console) > console.width:
                drawn = _table(block, narrow=True)
            with _wide_enough(drawn, console):
                console.print(drawn)
            if block.note:
                console.print(_seen(block.note), style="dim", markup=False)
        case Cases(cases):
            for case in cases:
                _case(case, console)


@contextmanager
def _wide_enough(drawn: Drawn, console: Console) -> Iterator[None]:
    """Widen the console for a table, so that no number is cut: a narrow terminal wraps lines."""
    before = console.width
    console.width = max(before, _width(drawn, console))
    try:
        yield
    finally:
        console.width = before


def _width(drawn: Drawn, console: Console) -> int:
    """Measure the width that a table needs without cutting anything."""
    unbounded = console.options.update(width=_UNBOUNDED)
    return drawn.__rich_measure__(console, unbounded).maximum


def _table(table: Table, narrow: bool = False) -> Drawn:
    """Build a table; a narrow one has headings in several lines and less space between columns."""
    drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0) if narrow else (0, 1))
    for number, name in enumerate(table.columns):
        words = number < table.words
        heading = _seen(name)
        drawn.add_column(
            Shown(heading.replace(" ", "\n") if narrow else heading),
            justify="left" if words else "right",
            overflow="fold",
            no_wrap=not words,
            max_width=_LABEL if words else None,
        )
    for number, row in enumerate(table.rows):
        ranks = (table.ranks.get((number, place)) for place in range(len(row)))
        pairs = zip(row, ranks, strict=True)
        drawn.add_row(*(Shown(_seen(cell), style=_STYLES[rank]) for cell, rank in pairs))
    return drawn


def _case(case: Case, console: Console) -> None:
    console.print(f"  {_seen(case.heading)}, gold {_line(case.gold)}", markup=False)
    asked = " ".join(case.prompt.split())
    # the question comes last, after instructions and examples
    end = asked if len(asked) <= _LONGEST else f"… {asked[-_LONGEST:]}"
    console.print(f"    prompt: {_seen(end)}", style="dim", markup=False)
    for name, text in (("before", case.before), ("after", case.after)):
        console.print(f"    {name}: {_line(text)}", style="dim", markup=False)


def _line(text: str) -> str:
    return _seen(shortened(" ".join(text.split()), _LONGEST))


def _seen(text: str) -> str:
    """Put a text on one line, so that a name or text cannot imitate a line of the program."""
    return " ".join(whole_text(visible(text)).split())
