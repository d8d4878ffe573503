"""The inside of a worker process: takes one job at a time, reports progress and what came of it.

Both directions are frames of JSON on pipes of their own: a length of four bytes, then the text. In:
``{"function": "module:name", "arguments": {...}}``. Out: ``["progress", done, total]``, and at the
end the outcome (``jobs.py``).
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import signal
import struct
import sys
import threading
import time
from typing import Any, BinaryIO, cast

from gapft_harness.core.processes import die_with
from gapft_harness.executors.jobs import outcome

#: Least seconds between two progress reports of a job; its last one is always sent.
PROGRESS_INTERVAL_S = 0.1

LENGTH = struct.Struct(">I")


def frame(message: Any) -> bytes:
    """One message as it goes over a pipe."""
    return framed(json.dumps(message).encode())


def framed(content: bytes) -> bytes:
    """JSON as it goes over a pipe."""
    return LENGTH.pack(len(content)) + content


def serve(jobs_fd: int, reports_fd: int, parent: int) -> None:
    """Does jobs until the parent closes the pipe or dies.

    Args:
        jobs_fd: the pipe's end that jobs arrive on.
        reports_fd: the pipe's end that reports leave by.
        parent: process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    die_with(parent)
    for fd in (jobs_fd, reports_fd):
        os.set_inheritable(fd, False)
    for stream in (sys.stdout, sys.stderr):
        # Both are a file here, and what is still buffered in a killed process is lost.
        cast(Any, stream).reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable()
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs_fd, jobs), daemon=True).start()
    reports = Reports(reports_fd)
    while True:
        _do(jobs.get(), reports)


class Reports:
    """Sends reports to the parent; progress no oftener than ``PROGRESS_INTERVAL_S``."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()  # a job may call progress from its own threads
        self._sent_at = float("-inf")
        self._held_back: tuple[int, int] | None = None

    def progress(self, done: int, total: int) -> None:
        """Reports ``done`` of ``total``, or keeps it until the next report."""
        with self._lock:
            self._held_back = (int(done), int(total))
            if time.monotonic() - self._sent_at >= PROGRESS_INTERVAL_S:
                self._release()

    def end(self, message: bytes) -> None:
        """Sends a job's outcome, after any progress kept back."""
        with self._lock:
            self._release()
            self._write(framed(message))
            self._sent_at = float("-inf")

    def _release(self) -> None:
        if self._held_back is not None:
            self._write(frame(["progress", *self._held_back]))
            self._held_back = None
            self._sent_at = time.monotonic()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except BrokenPipeError:
            os._exit(1)  # the parent is gone


def _do(job: dict[str, Any], reports: Reports) -> None:
    message = outcome(job["function"], job["arguments"], reports.progress)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reports.end(message.encode())


def _listen(fd: int, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Passes jobs on, and ends the process when the parent's end of the pipe closes."""
    try:
        with os.fdopen(fd, "rb") as pipe:
            while True:
                (length,) = LENGTH.unpack(_exactly(pipe, LENGTH.size))
                jobs.put(json.loads(_exactly(pipe, length)))
    finally:
        os._exit(1)


def _exactly(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data
