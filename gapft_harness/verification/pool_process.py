"""One worker process, seen from its parent: start, send, receive, kill."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from gapft_harness.core.processes import thread_limits

_BOOT = (
    "import json, sys; path, arguments = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from gapft_harness.verification.pool_child import serve; serve(*arguments)"
)


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One worker as its parent sees it; ``pool_child.py`` is its inside.

    Attributes:
        clock: when it started or last reported, the start of the current item (monotonic seconds).
        ready: whether it has imported its function.
        batch: numbers of the items it was given and has not reported.
    """

    process: subprocess.Popen[bytes]
    stderr: IO[bytes]
    clock: float
    ready: bool = False
    batch: collections.deque[int] = field(default_factory=collections.deque)
    buffer: bytes = b""

    @classmethod
    def start(cls, arguments: Sequence[Any]) -> WorkerProcess:
        """Starts one; ``arguments`` are those of ``pool_child.serve``."""
        # A fresh interpreter, not a fork: a fork would copy the parent's threads' locks and torch.
        # It gets the parent's import path, so it finds the same packages whatever __main__ is.
        path = [os.path.abspath(entry) for entry in sys.path]
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, "-s", "-c", _BOOT, json.dumps([path, arguments])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # A fixed hash seed: set order, and with it what sympy tries first, repeats.
            env={**os.environ, **thread_limits(1), "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        return cls(process, stderr, time.monotonic())

    @property
    def output(self) -> int:
        """The file descriptor of its reports."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def send(self, indices: Sequence[int], items: Sequence[Any]) -> None:
        """Gives it a batch. A worker that died meanwhile is noticed when its output closes."""
        assert self.process.stdin is not None
        self.batch.extend(indices)
        self.clock = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps([items[i] for i in indices]).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self) -> list[list[Any]] | None:
        """The reports that arrived; None when its output has closed."""
        data = os.read(self.output, 1 << 16)
        if not data:
            return None
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        if lines:
            self.clock = time.monotonic()
        return [json.loads(line) for line in lines]

    def kill(self) -> str:
        """Ends it and all that it started. Returns how it died, in words."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.stderr.seek(0)
        last = self.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        for stream in (self.process.stdin, self.process.stdout, self.stderr):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return f"{how}: {last[:300]}" if last else how
