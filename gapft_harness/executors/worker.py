"""The inside of an executor's worker: takes one job at a time, reports progress and its outcome.

In: ``{"function": "module:name", "arguments": {...}}``. Out: ``["progress", done, total, tokens,
note]``, and at the end the outcome (``jobs.py``).
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
import time
from typing import Any

from gapft_harness.core.processes import Parent, die_with
from gapft_harness.executors.jobs import outcome

#: Least seconds between two progress reports of a job; its last one is always sent.
PROGRESS_INTERVAL_S = 0.1


def serve(parent: Parent, pid: int) -> None:
    """Does jobs until the parent, whose process id is ``pid``, closes the pipe or dies."""
    die_with(pid)
    faulthandler.enable()
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, jobs), daemon=True).start()
    reports = Reports(parent)
    while True:
        job = jobs.get()
        message = outcome(job["function"], job["arguments"], reports.progress)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        reports.end(message)


class Reports:
    """Sends reports to the parent; progress no oftener than ``PROGRESS_INTERVAL_S``."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._lock = threading.Lock()  # a job may call progress from its own threads
        self._sent_at = float("-inf")
        self._held_back: tuple[int, int, int, str] | None = None

    def progress(self, done: int, total: int, tokens: int = 0, note: str = "") -> None:
        """Reports ``done`` of ``total``, or keeps it until the next report; a note goes at once."""
        with self._lock:
            self._held_back = (int(done), int(total), int(tokens), note)
            if note or time.monotonic() - self._sent_at >= PROGRESS_INTERVAL_S:
                self._release()

    def end(self, message: str) -> None:
        """Sends a job's outcome, after any progress kept back."""
        with self._lock:
            self._release()
            self._parent.tell(message.encode())
            self._sent_at = float("-inf")

    def _release(self) -> None:
        if self._held_back is not None:
            self._parent.tell(json.dumps(["progress", *self._held_back]).encode())
            self._held_back = None
            self._sent_at = time.monotonic()


def _listen(parent: Parent, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Passes jobs on, and ends the process when the parent's end of the pipe closes."""
    try:
        for message in parent.messages():
            jobs.put(json.loads(message))
    finally:
        os._exit(1)
