"""Show the progress of a run, its stages and jobs, and print pages."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from gapft_harness.cli.options import Form
from gapft_harness.presentation.content import format_duration
from gapft_harness.presentation.page import Page
from gapft_harness.presentation.visible import make_visible

#: Seconds between two lines on the same job if standard error is not a terminal.
_LINE_INTERVAL_S = 60.0
#: Seconds over which the speed of a job is measured.
_SPEED_PERIOD_S = 300.0


def print_page(page: Page, *lines: str, form: Form = "terminal") -> None:
    """Print a page and further lines to standard output; ignore a closed pipe.

    Args:
        page: the page.
        lines: printed after it, on standard error for a form other than the terminal's.
        form: how the page is written.
    """
    with contextlib.suppress(BrokenPipeError, SystemExit):  # rich exits with 1
        if form == "terminal":
            page.print(Console(highlight=False))
        else:
            typer.echo(page.to_markdown() if form == "markdown" else page.to_json(), nl=False)
        for line in lines:
            typer.echo(line, err=form != "terminal")


class Display:
    """A progress display on standard error: one line when a stage starts and when a job ends.

    A terminal also shows a bar for each running job. Elsewhere each running job prints one line a
    minute.
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._start = clock()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[tokens]}", style="dim"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
            get_time=clock,
            speed_estimate_period=_SPEED_PERIOD_S,
        )
        self._tasks: dict[str, TaskID] = {}
        self._printed_at: dict[str, float] = {}
        self._ended: set[str] = set()
        self._notes: set[str] = set()

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start_stage(self, name: str) -> None:
        """Report that a stage starts."""
        self._console.print(f"[bold]{name}[/] [dim]at {self._clock() - self._start:.0f} s[/]")

    def print_message(self, line: str) -> None:
        """Print a sentence of a stage, such as a warning."""
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
        if note and note not in self._notes:
            self._notes.add(note)
            self.print_message(f"warning: {label}: {note}")
        verdicts = f"verdicts of {label}"
        if label in self._ended and (done < total or verdicts in self._tasks):
            label = verdicts  # the job has generated, and now judges
        if label in self._ended:
            return
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(label, total=None, tokens="")
            self._printed_at[label] = self._clock()
        task_id = self._tasks[label]
        self._progress.update(
            task_id,
            completed=done,
            total=total or None,
            tokens=f"{tokens:,} tokens" if tokens else "",
        )
        task = next(task for task in self._progress.tasks if task.id == task_id)
        if total and done >= total:
            self._end_job(label, task)
        elif (
            not self._console.is_terminal
            and self._clock() - self._printed_at[label] >= _LINE_INTERVAL_S
        ):
            self._printed_at[label] = self._clock()
            self._console.print(f"  {label}: {_describe(task)}", style="dim", markup=False)

    def _end_job(self, label: str, task: Task) -> None:
        self._ended.add(label)
        self._progress.remove_task(self._tasks.pop(label))
        duration = format_duration(task.elapsed or 0.0)
        self._console.print(
            f"  [green]✓[/] {label:<28} {task.completed:>7,.0f} [dim]in {duration}[/]"
        )


def _describe(task: Task) -> str:
    """Describe a running job: its count and the time left, as far as they are known."""
    count = (
        f"{task.completed:,.0f}"
        if task.total is None
        else (f"{task.completed:,.0f} of {task.total:,.0f}")
    )
    if task.time_remaining is None:
        return count
    return f"{count}, about {format_duration(task.time_remaining)} to go"
