"""The progress display: counts, the time left, and one line when a job ends."""

from __future__ import annotations

import io

from rich.console import Console

from gapft_harness.cli.display import Display


class DisplayRecorder:
    """A display on a file or a terminal, with a clock that the test sets."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.now = 0.0
        self._text = io.StringIO()
        console = Console(
            file=self._text, width=80, highlight=False, force_terminal=terminal, color_system=None
        )
        self.display = Display(console, clock=lambda: self.now)

    def report(
        self, at: float, label: str, done: int, total: int, tokens: int = 0, note: str = ""
    ) -> str:
        """Report progress at a time in seconds, and return the new output."""
        self.now = at
        length = len(self._text.getvalue())
        self.display.report_progress(label, done, total, tokens, note)
        return self._text.getvalue()[length:]


def test_shows_each_note_once() -> None:
    recorder = DisplayRecorder()
    assert "memory ran out" in recorder.report(1, "search pool", 3, 400, 9, "memory ran out")
    assert recorder.report(2, "search audit", 3, 400, 9, "memory ran out") == ""
    assert "another" in recorder.report(3, "search audit", 3, 400, 9, "another")


def test_prints_one_line_a_minute_without_terminal() -> None:
    recorder = DisplayRecorder()
    assert [bool(recorder.report(at, "audit a", at, 1000)) for at in range(0, 180, 20)] == [
        at in (60, 120) for at in range(0, 180, 20)
    ]


def test_terminal_shows_bars_instead_of_lines() -> None:
    recorder = DisplayRecorder(terminal=True)
    assert [recorder.report(at, "audit a", at, 1000) for at in range(0, 180, 20)] == [""] * 9
