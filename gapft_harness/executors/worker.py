"""The process of a local worker: does one job at a time, and sends progress and the outcome.

Input: ``{"function": "module:name", "arguments": {...}}``. Output: ``["progress", done, total,
tokens, note]``, and at the end the outcome (see ``jobs.py``).
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

#: Minimum seconds between two progress reports of a job; the last report is always sent.
PROGRESS_INTERVAL_S = 0.1


def serve(parent: Parent, pid: int) -> None:
    """Do jobs until the parent process closes the pipe or dies.

    Args:
        parent: the pipe to the parent.
        pid: the parent's process id.
    """
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
    """Sends reports to the parent; progress at most once in ``PROGRESS_INTERVAL_S``."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._lock = threading.Lock()  # a job may call progress from its own threads
        self._sent_at = float("-inf")
        self._held_back: tuple[int, int, int, str] | None = None

    def progress(self, done: int, total: int, tokens: int = 0, note: str = "") -> None:
        """Send ``done`` of ``total``, or keep it for the next report; send a note at once."""
        with self._lock:
            self._held_back = (int(done), int(total), int(tokens), note)
            if note or time.monotonic() - self._sent_at >= PROGRESS_INTERVAL_S:
                self._release()

    def end(self, message: str) -> None:
        """Send a job's outcome, after the pending progress report if there is one."""
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
    """Put received jobs on the queue; end the process when the parent closes the pipe."""
    try:
        for message in parent.messages():
            jobs.put(json.loads(message))
    finally:
        os._exit(1)
