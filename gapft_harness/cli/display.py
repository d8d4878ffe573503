"""Show the progress of a run: its stages and, within each stage, its jobs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from gapft_harness.cli.options import Form
from gapft_harness.presentation.content import format_duration
from gapft_harness.presentation.page import Page

#: First word of a job's label -> (unit that it counts, activity before the first count).
_JOB_WORDS = {
    "read": ("tasks", "reading"),
    "search": ("responses", "loading data and model"),
    "train": ("steps", "loading the model"),
    "scale": ("adapters", "choosing"),
    "audit": ("responses", "loading the model"),
    "sample": ("responses", "loading the model"),
    "decode": ("responses", "loading the model"),
    "verdicts": ("verdicts", "judging"),
}

#: Jobs that judge their own responses: after the responses, they count verdicts from 0.
_JOBS_WITH_VERDICTS = ("search", "audit", "sample", "decode")

#: Seconds between two lines on the same job if standard error is not a terminal.
_LINE_INTERVAL_S = 60.0

#: Judging that takes fewer seconds gets no line of its own.
_MIN_JUDGING_S = 2.0

#: Minimum width of a terminal, in characters, that shows bars beside the text.
_MIN_WIDTH_FOR_BARS = 100


def print_page(page: Page, *lines: str, form: Form = "terminal") -> None:
    """Print a page and further lines to standard output; ignore a closed pipe.

    Args:
        page: the page.
        lines: printed after it, on standard error for a form other than the terminal's.
        form: how the page is written.
    """
    import typer

    with contextlib.suppress(BrokenPipeError, SystemExit):  # rich exits with 1
        if form == "terminal":
            page.print(Console(highlight=False))
        else:
            typer.echo(page.to_markdown() if form == "markdown" else page.to_json(), nl=False)
        for line in lines:
            typer.echo(line, err=form != "terminal")


@dataclass(slots=True)
class _RunningJob:
    """A running job.

    Attributes:
        label: the job's name.
        started_at: when it started, in seconds of the display's clock.
        task: its bar.
        printed_at: when a line was last printed on it.
        first_count: the count and the time of its first report. Work of an earlier command does
            not count for its speed.
        last_count: its latest count and total.
        tokens: tokens generated since its start.
    """

    label: str
    started_at: float
    task: TaskID
    printed_at: float
    first_count: tuple[int, float] | None = None
    last_count: tuple[int, int] = (0, 0)
    tokens: int = 0

    def format_progress(self, done: int, total: int, timestamp: float) -> str:
        """Describe progress, speed and estimated time left."""
        unit, activity = _JOB_WORDS.get(self.label.split(" ")[0], ("items", "starting"))
        start_count, start_time = self.first_count or (0, timestamp)
        seconds = max(timestamp - start_time, 1e-3)
        tokens = f", {_format_pace(self.tokens / seconds, 'tokens ')}" if self.tokens else ""
        if done <= start_count:
            if not total:
                return activity
            return f"{done:,} of {total:,} {unit}{tokens or f', {activity}'}"
        rate = (done - start_count) / seconds
        if not total:
            return f"{done:,} {unit}, {_format_pace(rate)}{tokens}"
        time_left = format_duration((total - done) / rate)
        return (
            f"{done:,} of {total:,} {unit}, {_format_pace(rate)}{tokens}, about {time_left} to go"
        )


@dataclass(slots=True)
class _Pace:
    """The speed at which all jobs together count a unit; time for loading models is excluded.

    Attributes:
        done: how many units were counted.
        seconds: the time that this took.
        since: when the latest count of the current stage was; None before its first.
    """

    done: int = 0
    seconds: float = 0.0
    since: float | None = None


class Display:
    """A progress display on standard error: one line when a stage starts and when a job ends.

    A terminal also shows a bar for each running job. Elsewhere each running job prints one line a
    minute.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        bars = [BarColumn(bar_width=16)] if self._console.width >= _MIN_WIDTH_FOR_BARS else []
        self._progress = Progress(
            TextColumn(" "),
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *bars,
            TextColumn("{task.fields[words]}", style="dim"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._clock = clock
        self._running_jobs: dict[str, _RunningJob] = {}
        self._ended_labels: set[str] = set()
        self._printed_notes: set[str] = set()
        self._start = clock()
        self._paces: dict[str, _Pace] = {}
        self._remaining: dict[str, int] = {}

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def start_stage(self, name: str) -> None:
        """Report that a stage starts."""
        seconds = self._clock() - self._start
        self._console.print(f"[bold]{name}[/] [dim]at {seconds:.0f} s[/]")
        for pace in self._paces.values():
            pace.since = None

    def set_remaining(self, remaining: Mapping[str, int]) -> None:
        """Set how many units the rest of the run counts, so that lines show the time left."""
        self._remaining = dict(remaining)

    def print_message(self, line: str) -> None:
        """Print a sentence of a stage, such as a warning."""
        from gapft_harness.presentation.visible import make_visible

        style = "yellow" if line.startswith("warning:") else "dim"
        self._console.print(f"  {make_visible(line)}", style=style, markup=False)

    def report_progress(
        self, label: str, done: int, total: int, tokens: int = 0, note: str = ""
    ) -> None:
        """Report a job's progress.

        Args:
            label: the job's name.
            done: how many items are finished.
            total: how many items it has; 0: not known yet.
            tokens: how many tokens this command generated for the job.
            note: a warning to print now; a note that several jobs report is printed once.
        """
        if note and note not in self._printed_notes:
            self._printed_notes.add(note)
            self.print_message(f"warning: {label}: {note}")
        label = self._choose_label(label, done, total)
        if label in self._ended_labels:
            return
        timestamp = self._clock()
        was_complete = label not in self._running_jobs and bool(total) and done >= total
        if label not in self._running_jobs:
            task = self._progress.add_task(label, total=None, words="")
            self._running_jobs[label] = _RunningJob(label, timestamp, task, printed_at=timestamp)
        running = self._running_jobs[label]
        if running.first_count is None and (total or done):
            running.first_count = done, timestamp
        running.tokens = tokens
        words = running.format_progress(done, total, timestamp)
        self._progress.update(running.task, completed=done, total=total or None, words=words)
        self._update_pace(
            running, done - running.last_count[0] if running.last_count != (0, 0) else 0, timestamp
        )
        running.last_count = done, total
        if total and done >= total:
            self._finish_job(running, total, timestamp, was_complete)
        elif not self._console.is_terminal and timestamp - running.printed_at >= _LINE_INTERVAL_S:
            running.printed_at = timestamp
            self._console.print(f"  {label}: {words}", style="dim", markup=False)

    def _update_pace(self, running: _RunningJob, more: int, timestamp: float) -> None:
        """Add newly finished units to the speed of all jobs that count this unit."""
        unit = _JOB_WORDS.get(running.label.split(" ")[0], ("items",))[0]
        pace = self._paces.setdefault(unit, _Pace())
        is_first_count = running.last_count == (0, 0)  # the time before it was spent on loading
        if pace.since is not None and not is_first_count:
            pace.seconds += timestamp - pace.since
            pace.done += max(more, 0)
        pace.since = timestamp
        if unit in self._remaining:
            self._remaining[unit] -= max(more, 0)

    def _format_remaining(self) -> str:
        """Format the time left of the run; empty if the speed of a remaining unit is not known."""
        remaining = {unit: count for unit, count in self._remaining.items() if count > 0}
        paces = [self._paces.get(unit, _Pace()) for unit in remaining]
        if not remaining or not all(pace.done and pace.seconds for pace in paces):
            return ""
        seconds = sum(
            count * pace.seconds / pace.done
            for count, pace in zip(remaining.values(), paces, strict=True)
        )
        return f" · run: {format_duration(seconds)} left"

    def _choose_label(self, label: str, done: int, total: int) -> str:
        """Return the job's label, or the label of its verdicts once it counts verdicts."""
        verdicts = f"verdicts of {label}"
        if verdicts in self._running_jobs or verdicts in self._ended_labels:
            return verdicts
        if label.split(" ")[0] not in _JOBS_WITH_VERDICTS:
            return label
        running = self._running_jobs.get(label)
        if running is not None and done < running.last_count[0]:
            self._finish_job(running, running.last_count[1], self._clock())
        return verdicts if label in self._ended_labels and done < total else label

    def _finish_job(
        self, running: _RunningJob, total: int, timestamp: float, was_complete: bool = False
    ) -> None:
        self._ended_labels.add(running.label)
        del self._running_jobs[running.label]
        self._progress.remove_task(running.task)
        if (
            running.label.startswith("verdicts ")
            and timestamp - running.started_at < _MIN_JUDGING_S
        ):
            return  # too short for a second line beside that of its responses
        unit = _JOB_WORDS.get(running.label.split(" ")[0], ("items",))[0]
        unit = unit[:-1] if total == 1 else unit
        time_text = (
            "already done"
            if was_complete
            else f"in {format_duration(timestamp - running.started_at)}"
        )
        seconds = f"[dim]{time_text}{self._format_remaining()}[/]"
        self._console.print(f"  [green]✓[/] {running.label:<28} {total:>7,} {unit} {seconds}")


def _format_pace(rate: float, what: str = "") -> str:
    for times, unit in ((1, "a second"), (60, "a minute")):
        if rate * times >= 1:
            return f"{rate * times:,.{0 if rate * times >= 10 else 1}f} {what}{unit}"
    return f"{3600 * rate:.1f} {what}an hour"
