"""The progress display: counts, the time left, and one line when a job ends."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
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


def test_time_left_ignores_earlier_work() -> None:
    recorder = DisplayRecorder()
    recorder.report(0, "train gapft-seed13", 300, 500)
    line = recorder.report(100, "train gapft-seed13", 350, 500)
    assert line == "  train gapft-seed13: 350 of 500, about 5.0 min to go\n"


def test_reduced_total_ends_the_job() -> None:
    recorder = DisplayRecorder()
    recorder.report(0, "search pool", 10, 100)
    assert recorder.report(5, "search pool", 20, 30) == ""
    assert recorder.report(8, "search pool", 25, 25).split() == [
        "✓",
        "search",
        "pool",
        "25",
        "in",
        "8",
        "s",
    ]
    assert recorder.report(9, "search pool", 25, 25) == ""


def test_verdicts_after_responses_are_a_job_of_their_own() -> None:
    recorder = DisplayRecorder()
    recorder.report(0, "search pool", 0, 20)
    assert "✓ search pool" in recorder.report(4, "search pool", 20, 20)
    assert recorder.report(5, "search pool", 5, 20) == ""
    assert "✓ verdicts of search pool" in recorder.report(9, "search pool", 20, 20)
    assert recorder.report(10, "search pool", 20, 20) == ""


def test_prints_one_line_a_minute_without_terminal() -> None:
    recorder = DisplayRecorder()
    assert [bool(recorder.report(at, "audit a", at, 1000)) for at in range(0, 180, 20)] == [
        at in (60, 120) for at in range(0, 180, 20)
    ]


def test_terminal_shows_bars_instead_of_lines() -> None:
    recorder = DisplayRecorder(terminal=True)
    assert [recorder.report(at, "audit a", at, 1000) for at in range(0, 180, 20)] == [""] * 9


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_any_reports_end_a_job_at_most_twice(reports: list[tuple[int, int]]) -> None:
    """Once for its responses, once for its verdicts."""
    recorder = DisplayRecorder()
    printed = [recorder.report(i, "x", done, total) for i, (done, total) in enumerate(reports)]
    ends = [text for text in printed if "✓" in text]
    assert bool(ends) == any(total and done >= total for done, total in reports)
    assert len(ends) <= 2
