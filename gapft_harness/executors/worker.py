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

from gapft_harness.core.processes import Parent, die_with_parent
from gapft_harness.executors.jobs import run_job

#: Minimum seconds between two progress reports of a job; the last report is always sent.
PROGRESS_INTERVAL_S = 0.1


def run_worker(parent: Parent, pid: int) -> None:
    """Do jobs until the parent process closes the pipe or dies.

    Args:
        parent: the pipe to the parent.
        pid: the parent's process id.
    """
    die_with_parent(pid)
    faulthandler.enable()
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_receive_jobs, args=(parent, jobs), daemon=True).start()
    reports = ReportSender(parent)
    while True:
        job = jobs.get()
        message = run_job(job["function"], job["arguments"], reports.send_progress)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        reports.send_outcome(message)


class ReportSender:
    """Sends reports to the parent; progress at most once in ``PROGRESS_INTERVAL_S``."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._lock = threading.Lock()  # a job may call progress from its own threads
        self._sent_at = float("-inf")
        self._pending: tuple[int, int, int, str] | None = None

    def send_progress(self, done: int, total: int, tokens: int = 0, note: str = "") -> None:
        """Send ``done`` of ``total``, or keep it for the next report; send a note at once."""
        with self._lock:
            self._pending = (int(done), int(total), int(tokens), note)
            if note or time.monotonic() - self._sent_at >= PROGRESS_INTERVAL_S:
                self._flush()

    def send_outcome(self, message: str) -> None:
        """Send a job's outcome, after the pending progress report if there is one."""
        with self._lock:
            self._flush()
            self._parent.send(message.encode())
            self._sent_at = float("-inf")

    def _flush(self) -> None:
        if self._pending is not None:
            self._parent.send(json.dumps(["progress", *self._pending]).encode())
            self._pending = None
            self._sent_at = time.monotonic()


def _receive_jobs(parent: Parent, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Put received jobs on the queue; end the process when the parent closes the pipe."""
    try:
        for message in parent.read_messages():
            jobs.put(json.loads(message))
    finally:
        os._exit(1)
