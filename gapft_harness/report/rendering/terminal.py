"""Print blocks on a terminal. A model's text cannot move the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text as Shown

from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.presentation.visible import make_visible, shorten
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

#: Characters that the terminal shows of a text.
_MAX_CHARS = 110
#: Characters of a name in a table on one line; longer names are wrapped.
_MAX_LABEL_CHARS = 40
#: Styles by a cell's rank.
_STYLES: Mapping[Rank | None, str] = {None: "", "best": "bold", "second": "underline"}
#: Wider than any table.
_UNBOUNDED = 10_000


def print_sections(sections: Sequence[Section], console: Console) -> None:
    """Print sections in order."""
    for section in sections:
        if section.title:
            console.print(f"\n{_join_lines(section.title)}", style="bold", markup=False)
        for block in section.blocks:
            _print_block(block, console)


def _print_block(block: Block, console: Console) -> None:
    match block:
        case Text():
            style = "yellow" if block.role == "warning" else None
            console.print(_join_lines(block.line), style=style, markup=False)
        case Bullets(items):
            for item in items:
                console.print(f"  {_join_lines(item)}", style="dim", markup=False)
        case Table():
            drawn = _build_table(block)
            if _measure_width(drawn, console) > console.width:
                drawn = _build_table(block, narrow=True)
            with _widen_console(drawn, console):
                console.print(drawn)
            if block.note:
                console.print(_join_lines(block.note), style="dim", markup=False)
        case Cases(cases):
            for case in cases:
                _print_case(case, console)


@contextmanager
def _widen_console(table: Drawn, console: Console) -> Iterator[None]:
    """Widen the console for a table, so that no number is cut: a narrow terminal wraps lines."""
    width = console.width
    console.width = max(width, _measure_width(table, console))
    try:
        yield
    finally:
        console.width = width


def _measure_width(table: Drawn, console: Console) -> int:
    """Measure the width that a table needs without cutting anything."""
    unbounded = console.options.update(width=_UNBOUNDED)
    return table.__rich_measure__(console, unbounded).maximum


def _build_table(table: Table, narrow: bool = False) -> Drawn:
    """Build a table; a narrow one has headings in several lines and less space between columns."""
    drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0) if narrow else (0, 1))
    for number, name in enumerate(table.columns):
        words = number < table.words
        heading = _join_lines(name)
        drawn.add_column(
            Shown(heading.replace(" ", "\n") if narrow else heading),
            justify="left" if words else "right",
            overflow="fold",
            no_wrap=not words,
            max_width=_MAX_LABEL_CHARS if words else None,
        )
    for number, row in enumerate(table.rows):
        ranks = (table.ranks.get((number, place)) for place in range(len(row)))
        pairs = zip(row, ranks, strict=True)
        drawn.add_row(*(Shown(_join_lines(cell), style=_STYLES[rank]) for cell, rank in pairs))
    return drawn


def _print_case(case: Case, console: Console) -> None:
    console.print(f"  {_join_lines(case.heading)}, gold {_shorten_line(case.gold)}", markup=False)
    prompt = " ".join(case.prompt.split())
    # the question comes last, after instructions and examples
    end = prompt if len(prompt) <= _MAX_CHARS else f"… {prompt[-_MAX_CHARS:]}"
    console.print(f"    prompt: {_join_lines(end)}", style="dim", markup=False)
    for name, text in (("before", case.before), ("after", case.after)):
        console.print(f"    {name}: {_shorten_line(text)}", style="dim", markup=False)


def _shorten_line(text: str) -> str:
    return _join_lines(shorten(" ".join(text.split()), _MAX_CHARS))


def _join_lines(text: str) -> str:
    """Put a text on one line, so that a name or text cannot imitate a line of the program."""
    return " ".join(replace_text_surrogates(make_visible(text)).split())
