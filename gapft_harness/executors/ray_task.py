"""The inside of a Ray task, and the actor that carries progress to the driver.

Neither imports ray: the driver makes a task and an actor of them.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.executors.jobs import failure_text, outcome

#: Least seconds between two progress reports of a job.
_INTERVAL_S = 0.2


class ProgressBoard:
    """Keeps the first and the latest progress of each job until the driver takes it."""

    def __init__(self) -> None:
        self._kept: dict[int, list[tuple[int, int]]] = {}

    def put(self, number: int, done: int, total: int) -> None:
        """A job got so far."""
        self._kept[number] = [*self._kept.get(number, ())[:1], (done, total)]

    def take(self) -> list[tuple[int, int, int]]:
        """(job, done, total) of the jobs that got further since the last call."""
        taken = [(number, *each) for number, kept in sorted(self._kept.items()) for each in kept]
        self._kept.clear()
        return taken


def work(
    number: int, function: str, arguments: Mapping[str, Any], folder: str, reports: Any
) -> tuple[str, tuple[int, int] | None]:
    """Does one job in the driver's working directory.

    Args:
        number: the job's.
        function: ``module:name``.
        arguments: the job's.
        folder: the driver's working directory, which relative paths start from.
        reports: a handle of the ``ProgressBoard`` actor.

    Returns:
        The outcome (``jobs.outcome``), and the last progress that was made.
    """
    last: tuple[int, int] | None = None
    sent_at = float("-inf")

    def progress(done: int, total: int) -> None:
        nonlocal last, sent_at
        last = (int(done), int(total))
        if time.monotonic() - sent_at >= _INTERVAL_S:
            reports.put.remote(number, *last)
            sent_at = time.monotonic()

    try:
        os.chdir(folder)
    except OSError as error:
        return failure_text(
            UserError(
                f"folder {folder}: cannot be entered on {platform.node()} ({error.strerror}); it "
                "must be visible under the same path to all workers"
            )
        ), None
    with _ended_by_sigterm():
        return outcome(function, arguments, progress), last


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the process at once, as SIGKILL does, so that Ray starts its job again.

    ``ray stop``, a preempted node and Slurm send it. Ray's own handler would raise SystemExit in
    the job, which nobody can tell from a job that gives up by ``sys.exit``.
    """
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
