"""The progress that a person sees: how far, how fast, how long still, and what is done now."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gapft_harness.cli.display import Display


class DisplayRecorder:
    """A display on a file or a terminal, with a clock that is set by hand."""

    def __init__(self, *, terminal: bool = False, width: int = 80) -> None:
        self.now = 0.0
        self._text = io.StringIO()
        console = Console(
            file=self._text, width=width, highlight=False, force_terminal=terminal,
            color_system=None,
        )  # fmt: skip
        self.display = Display(console, clock=lambda: self.now)

    def tell(
        self, at: float, label: str, done: int, total: int | None, tokens: int = 0, note: str = ""
    ) -> str:
        """A report at that second; what was printed because of it."""
        self.now = at
        before = len(self._text.getvalue())
        self.display.report_progress(label, done, total, tokens, note)
        return self._text.getvalue()[before:]

    def bar(self) -> str:
        """The words beside the bar."""
        (task,) = self.display._progress.tasks
        return str(task.fields["words"])


def test_shows_tokens_before_responses_finish() -> None:
    seen = DisplayRecorder()
    seen.tell(0, "search pool", 100, 400)
    seen.tell(10, "search pool", 100, 400, 250)
    assert seen.bar() == "100 of 400 responses, 25 tokens a second"
    seen.tell(20, "search pool", 120, 400, 600)
    assert (
        seen.bar() == "120 of 400 responses, 1.0 a second, 30 tokens a second, about 4.7 min to go"
    )


def test_shows_each_note_once() -> None:
    seen = DisplayRecorder()
    assert "memory ran out" in seen.tell(1, "search pool", 3, 400, 9, "memory ran out")
    assert seen.tell(2, "search audit", 3, 400, 9, "memory ran out") == ""
    assert "another" in seen.tell(3, "search audit", 3, 400, 9, "another")


def test_rate_ignores_earlier_work() -> None:
    seen = DisplayRecorder()
    seen.tell(0, "train gapft-seed13", 300, 500)
    assert seen.bar() == "300 of 500 steps, loading the model"
    seen.tell(100, "train gapft-seed13", 350, 500)
    assert seen.bar() == "350 of 500 steps, 30 a minute, about 5.0 min to go"


def test_reduced_total_ends_the_job() -> None:
    seen = DisplayRecorder()
    seen.tell(0, "search pool", 10, 100)
    assert seen.tell(5, "search pool", 20, 30) == ""
    assert " ".join(seen.tell(8, "search pool", 25, 25).split()) == (
        "✓ search pool 25 responses in 8 s"
    )
    assert seen.tell(9, "search pool", 25, 25) == ""


def test_finished_job_shows_remaining_time() -> None:
    seen = DisplayRecorder()
    seen.display.start_stage("search")
    seen.tell(0, "search audit", 0, 100)
    seen.tell(10, "search audit", 100, 100)  # 10 responses a second
    seen.display.start_stage("train")
    seen.display.set_remaining({"steps": 60, "responses": 300})
    for arm in ("a", "b"):  # side by side: 2 steps a second together, whatever came before
        seen.tell(100, f"train {arm}", 0, 20)
    for at in range(101, 120):
        for arm in ("a", "b"):
            seen.tell(at, f"train {arm}", at - 100, 20)
    # 21 steps and 300 responses are left, then 20 steps
    assert "in 20 s · run: 41 s left" in seen.tell(120, "train a", 20, 20)
    assert "in 20 s · run: 40 s left" in seen.tell(120, "train b", 20, 20)
    seen.tell(200, "train c", 0, 20)  # its loading is no step's time
    assert "run: 30 s left" in seen.tell(210, "train c", 20, 20)
    seen.display.start_stage("audit")
    seen.tell(300, "audit a", 0, 300)
    assert "left" not in seen.tell(330, "audit a", 300, 300), "nothing is"


def test_prints_one_line_a_minute_without_terminal() -> None:
    seen = DisplayRecorder()
    assert [bool(seen.tell(at, "audit a", at, 1000)) for at in range(0, 180, 20)] == [
        at in (60, 120) for at in range(0, 180, 20)
    ]
    line = "  audit a: 200 of 1,000 responses, 1.0 a second, about 13.3 min to go\n"
    assert seen.tell(200, "audit a", 200, 1000) == line


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_any_reports_end_a_job_once(reports: list[tuple[int, int]]) -> None:
    seen = DisplayRecorder()
    printed = [seen.tell(i, "x", done, total) for i, (done, total) in enumerate(reports)]
    ends = [i for i, (done, total) in enumerate(reports) if total and done >= total]
    assert [i for i, text in enumerate(printed) if "✓" in text] == ends[:1]
