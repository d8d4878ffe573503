"""One worker process, seen from its parent: start, send, receive, end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, Any

from gapft_harness.core.processes import thread_limits
from gapft_harness.executors.worker import LENGTH, frame

_BOOT = (
    "import json, sys; path, arguments = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from gapft_harness.executors.worker import serve; serve(*arguments)"
)

#: Seconds a worker whose pipe has closed may take to end by itself, so that its own exit status is
#: seen and not that of being killed.
_LAST_BREATH_S = 5.0

#: Bytes and lines of a worker's output that an error shows.
_TAIL_BYTES, _TAIL_LINES = 16384, 20


@dataclass(slots=True, eq=False)
class Worker:
    """One worker as its parent sees it; ``worker.py`` is its inside.

    Attributes:
        process: the process, in a session of its own.
        output: the file that its standard output and error go to.
        jobs: the pipe's end that jobs leave by.
        reports: the pipe's end that reports arrive on.
        job: number of the job it is doing; None when idle.
    """

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    jobs: int
    reports: int
    job: int | None = None
    buffer: bytes = b""

    @classmethod
    def start(cls, threads: int) -> Worker:
        """Starts one that may use ``threads`` CPU threads; does not wait for it."""
        path = [os.path.abspath(entry) for entry in sys.path]
        output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        # Appending, so that it can be emptied between jobs while the worker writes to it.
        flags = fcntl.fcntl(output, fcntl.F_GETFL)
        fcntl.fcntl(output, fcntl.F_SETFL, flags | os.O_APPEND)
        take_jobs, jobs = os.pipe()
        reports, give_reports = os.pipe()
        os.set_blocking(reports, False)
        arguments = json.dumps([path, [take_jobs, give_reports, os.getpid()]])
        try:
            process = subprocess.Popen(
                # A fresh interpreter with the parent's import path finds the same packages.
                [sys.executable, "-s", "-c", _BOOT, arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    **thread_limits(threads),
                    "TOKENIZERS_PARALLELISM": "false",
                },
                pass_fds=(take_jobs, give_reports),
                start_new_session=True,  # the terminal's Ctrl-C goes to the parent alone
            )
        except BaseException:
            os.close(jobs)
            os.close(reports)
            output.close()
            raise
        finally:
            # Only the child may hold these, or neither side would see the other's end close.
            os.close(take_jobs)
            os.close(give_reports)
        return cls(process, output, jobs, reports)

    def send(self, number: int, function: str, arguments: dict[str, Any]) -> None:
        """Gives it a job. That it died meanwhile is noticed when its reports close."""
        self.job = number
        os.ftruncate(self.output.fileno(), 0)
        view = memoryview(frame({"function": function, "arguments": arguments}))
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[os.write(self.jobs, view) :]

    def receive(self) -> list[list[Any]] | None:
        """The reports that arrived, perhaps none; None when it is dead and all has been read."""
        try:
            data = os.read(self.reports, 1 << 16)
        except BlockingIOError:  # a child of a dead worker may still hold its end of the pipe
            return [] if self.process.poll() is None else None
        if not data:
            return None
        self.buffer += data
        messages = []
        while len(self.buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self.buffer)[0]
            if len(self.buffer) < end:
                break
            messages.append(json.loads(self.buffer[LENGTH.size : end]))
            self.buffer = self.buffer[end:]
        return messages

    def tail(self) -> str:
        """The last lines it wrote to standard output and error during its job."""
        fd = self.output.fileno()
        start = max(0, os.fstat(fd).st_size - _TAIL_BYTES)
        # pread: the offset is shared with the worker, which may still be writing.
        lines = os.pread(fd, _TAIL_BYTES, start).decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def autopsy(self) -> str:
        """How a worker whose pipe has closed died, in words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_LAST_BREATH_S)
        code = self.process.poll()
        if code is None:
            return "it closed its pipe and went on"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def end(self) -> None:
        """Kills it and all in its session's group. Ending twice is no error."""
        if self.output.closed:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.jobs)
        os.close(self.reports)
        self.output.close()
