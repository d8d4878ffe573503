"""The progress display: counts, the time left, and one line when a job ends."""

from __future__ import annotations

import io
import itertools
from typing import Any

from rich.console import Console

from gapft_harness.cli.display import Display


def report(terminal: bool, *calls: tuple[Any, ...]) -> list[str]:
    """Report progress on a terminal or a file, every twenty seconds; return the new outputs."""
    text, outputs, seconds = io.StringIO(), list[str](), itertools.count(step=20.0)
    now = next(seconds)
    console = Console(
        file=text, width=80, highlight=False, force_terminal=terminal, color_system=None
    )
    display = Display(console, clock=lambda: now)
    for call in calls:
        length = len(text.getvalue())
        display.report_progress(*call)
        outputs.append(text.getvalue()[length:])
        now = next(seconds)
    return outputs


def test_shows_each_note_once() -> None:
    notes = ("memory ran out", "memory ran out", "another")
    shown = report(False, *(("search pool", 3, 400, 9, note) for note in notes))
    assert "memory ran out" in shown[0]
    assert shown[1] == ""
    assert "another" in shown[2]


def test_prints_one_line_a_minute_or_bars_on_a_terminal() -> None:
    calls = [("audit a", done, 1000) for done in range(9)]
    shown = [bool(text) for text in report(False, *calls)]
    assert shown == [number in (3, 6) for number in range(9)]
    assert report(True, *calls) == [""] * 9
