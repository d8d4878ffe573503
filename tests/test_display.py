"""The progress display: amount, rate, remaining time and current work."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gapft_harness.cli.display import Display


class DisplayRecorder:
    """A display on a file or a terminal, with a clock that the test sets."""

    def __init__(self, *, terminal: bool = False, width: int = 80) -> None:
        self.now = 0.0
        self._text = io.StringIO()
        console = Console(
            file=self._text, width=width, highlight=False, force_terminal=terminal,
            color_system=None,
        )  # fmt: skip
        self.display = Display(console, clock=lambda: self.now)

    def report(
        self, at: float, label: str, done: int, total: int, tokens: int = 0, note: str = ""
    ) -> str:
        """Report progress at a time in seconds, and return the new output."""
        self.now = at
        length = len(self._text.getvalue())
        self.display.report_progress(label, done, total, tokens, note)
        return self._text.getvalue()[length:]

    def read_words(self) -> str:
        """Return the words beside the bar."""
        (task,) = self.display._progress.tasks
        return str(task.fields["words"])


def test_shows_tokens_before_responses_finish() -> None:
    recorder = DisplayRecorder()
    recorder.report(0, "search pool", 100, 400)
    recorder.report(10, "search pool", 100, 400, 250)
    assert recorder.read_words() == "100 of 400 responses, 25 tokens a second"
    recorder.report(20, "search pool", 120, 400, 600)
    assert (
        recorder.read_words()
        == "120 of 400 responses, 1.0 a second, 30 tokens a second, about 4.7 min to go"
    )


def test_shows_each_note_once() -> None:
    recorder = DisplayRecorder()
    assert "memory ran out" in recorder.report(1, "search pool", 3, 400, 9, "memory ran out")
    assert recorder.report(2, "search audit", 3, 400, 9, "memory ran out") == ""
    assert "another" in recorder.report(3, "search audit", 3, 400, 9, "another")


def test_rate_ignores_earlier_work() -> None:
    recorder = DisplayRecorder()
    recorder.report(0, "train gapft-seed13", 300, 500)
    assert recorder.read_words() == "300 of 500 steps, loading the model"
    recorder.report(100, "train gapft-seed13", 350, 500)
    assert recorder.read_words() == "350 of 500 steps, 30 a minute, about 5.0 min to go"


def test_reduced_total_ends_the_job() -> None:
    recorder = DisplayRecorder()
    recorder.report(0, "search pool", 10, 100)
    assert recorder.report(5, "search pool", 20, 30) == ""
    assert " ".join(recorder.report(8, "search pool", 25, 25).split()) == (
        "✓ search pool 25 responses in 8 s"
    )
    assert recorder.report(9, "search pool", 25, 25) == ""


def test_finished_job_shows_remaining_time() -> None:
    recorder = DisplayRecorder()
    recorder.display.start_stage("search")
    recorder.report(0, "search audit", 0, 100)
    recorder.report(10, "search audit", 100, 100)  # 10 responses a second
    recorder.display.start_stage("train")
    recorder.display.set_remaining({"steps": 60, "responses": 300})
    for arm in ("a", "b"):  # in parallel: 2 steps a second together, whatever came before
        recorder.report(100, f"train {arm}", 0, 20)
    for at in range(101, 120):
        for arm in ("a", "b"):
            recorder.report(at, f"train {arm}", at - 100, 20)
    # 21 steps and 300 responses are left, then 20 steps
    assert "in 20 s · run: 41 s left" in recorder.report(120, "train a", 20, 20)
    assert "in 20 s · run: 40 s left" in recorder.report(120, "train b", 20, 20)
    recorder.report(200, "train c", 0, 20)  # loading does not count as step time
    assert "run: 30 s left" in recorder.report(210, "train c", 20, 20)
    recorder.display.start_stage("audit")
    recorder.report(300, "audit a", 0, 300)
    assert "left" not in recorder.report(330, "audit a", 300, 300), "no work is left"


def test_prints_one_line_a_minute_without_terminal() -> None:
    recorder = DisplayRecorder()
    assert [bool(recorder.report(at, "audit a", at, 1000)) for at in range(0, 180, 20)] == [
        at in (60, 120) for at in range(0, 180, 20)
    ]
    line = "  audit a: 200 of 1,000 responses, 1.0 a second, about 13.3 min to go\n"
    assert recorder.report(200, "audit a", 200, 1000) == line


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_any_reports_end_a_job_once(reports: list[tuple[int, int]]) -> None:
    recorder = DisplayRecorder()
    printed = [recorder.report(i, "x", done, total) for i, (done, total) in enumerate(reports)]
    ends = [i for i, (done, total) in enumerate(reports) if total and done >= total]
    assert [i for i, text in enumerate(printed) if "✓" in text] == ends[:1]
