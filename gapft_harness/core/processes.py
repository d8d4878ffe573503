"""Worker processes: ``WorkerProcess`` is the parent's side, ``Parent`` the worker's.

Messages are lines of JSON on two dedicated pipes. The output of the process goes to a file; error
messages show the end of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import IO, Any, Self, cast

_PR_SET_PDEATHSIG = 1


def build_thread_environment(threads: int) -> dict[str, str]:
    """Build the environment variables that limit the threads of a child's libraries.

    Waiting threads sleep unless ``OMP_WAIT_POLICY`` is already set: spinning threads make two
    threads slower than one as soon as a different process needs the same cores.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    waiting = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    return {**dict.fromkeys(names, str(threads)), **waiting}


def open_standard_streams() -> None:
    """Open descriptors 0 to 2 if they are closed, so that no pipe gets one of these numbers.

    Starting a process replaces these descriptors by its standard streams, so that a pipe with one
    of these numbers would be lost.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux only).

    The thread that reads messages does the same on every system, but not during a long C call that
    holds the interpreter's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


class Closing(ABC):
    """Base class of objects that own processes or files; ``with`` calls ``close()`` at its end."""

    @abstractmethod
    def close(self) -> None:
        """End the processes and close the files. A second call has no effect."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reduce_gc_frequency() -> None:
    """Run the garbage collector after 50,000 new objects, not after 700 or 2,000 (the defaults).

    Importing torch, transformers and lm_eval creates hundreds of thousands of objects and almost no
    garbage; with the defaults the collector takes a sixth of the import time.
    """
    gc.set_threshold(50_000)


def import_function(function: str) -> Callable[..., Any]:
    """Import the function named ``module:name``."""
    module, _, name = function.partition(":")
    imported: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return imported


def begin(serve: str, pipes: Sequence[int], arguments: Sequence[Any]) -> None:
    """Set up a worker process and call its function.

    Args:
        serve: ``module:name`` of the function; it gets a ``Parent`` and ``arguments``.
        pipes: the descriptors that messages are read from and reports are written to.
        arguments: further arguments of the function, JSON values.
    """
    reduce_gc_frequency()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    for fd in pipes:
        os.set_inheritable(fd, False)
    for stream in (sys.stdout, sys.stderr):
        # Both are files in a worker, and a killed process loses its buffered output.
        cast(Any, stream).reconfigure(line_buffering=True, errors="backslashreplace")
    import_function(serve)(Parent(*pipes), *arguments)


class Parent:
    """The connection of a worker process to its parent."""

    def __init__(self, messages: int, reports: int) -> None:
        """Store the descriptors that messages are read from and reports are written to."""
        self._messages = os.fdopen(messages, "rb")
        self._reports = reports

    def read_messages(self) -> Iterator[bytes]:
        """Yield the parent's messages as JSON until the parent closes the pipe or dies."""
        for line in self._messages:
            if line.endswith(b"\n"):  # a parent that dies may leave a part of a message
                yield line

    def send(self, content: bytes) -> None:
        """Send the parent a report, one line of JSON; exit this process if the parent has died."""
        view = memoryview(content + b"\n")
        try:
            while view:
                view = view[os.write(self._reports, view) :]
        except BrokenPipeError:
            os._exit(1)


_BOOT = (
    "import json, sys; path, *arguments = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from gapft_harness.core.processes import begin; begin(*arguments)"
)

#: Seconds to wait for a worker to exit after its pipe closed, so that its own exit status is
#: reported and not the signal that we would kill it with.
_EXIT_GRACE_S = 5.0

#: Maximum bytes and lines of a worker's output in an error message.
_TAIL_BYTES, _TAIL_LINES = 16384, 20


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One worker process, as the parent sees it.

    Attributes:
        process: the process, in its own session.
        output: the file with its standard output and error.
        messages: the descriptor that messages are written to.
        reports: the descriptor that reports are read from.
        buffer: bytes of a report that has not arrived completely.
    """

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    messages: int
    reports: int
    buffer: bytes = b""

    @classmethod
    def start(cls, serve: str, arguments: Sequence[Any], environment: Mapping[str, str]) -> Self:
        """Start a worker without waiting for it.

        Args:
            serve: ``module:name`` of the function that the worker calls with its ``Parent`` and
                the arguments.
            arguments: further arguments of that function, JSON values.
            environment: variables added to this process's environment.
        """
        import fcntl  # not on Windows, where logs can be read all the same

        open_standard_streams()
        path = [os.path.abspath(entry) for entry in sys.path]
        output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        # In append mode the parent can truncate the file while the worker writes to it.
        flags = fcntl.fcntl(output, fcntl.F_GETFL)
        fcntl.fcntl(output, fcntl.F_SETFL, flags | os.O_APPEND)
        child_messages, messages = os.pipe()
        reports, child_reports = os.pipe()
        os.set_blocking(reports, False)
        argument = json.dumps([path, serve, [child_messages, child_reports], arguments])
        try:
            process = subprocess.Popen(
                # A new interpreter: a fork would copy torch and the locks of the parent's threads.
                # With the parent's import path it finds the same packages.
                [sys.executable, "-s", "-c", _BOOT, argument],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                pass_fds=(child_messages, child_reports),
                start_new_session=True,  # so that Ctrl-C in the terminal reaches only the parent
            )
        except BaseException:
            os.close(messages)
            os.close(reports)
            output.close()
            raise
        finally:
            # Only the child may keep these open: otherwise neither side would notice that the
            # other has closed its end.
            os.close(child_messages)
            os.close(child_reports)
        return cls(process, output, messages, reports)

    def send(self, message: Any) -> None:
        """Send the worker a message; ``receive`` reports it if the worker has died."""
        view = memoryview(f"{json.dumps(message)}\n".encode())
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[os.write(self.messages, view) :]

    def receive(self) -> list[Any] | None:
        """Return the reports that have arrived, or None if the worker died and all were read."""
        try:
            data = os.read(self.reports, 1 << 16)
        except BlockingIOError:  # a child of a dead worker may still have the pipe open
            return [] if self.process.poll() is None else None
        if not data:
            return None
        *reports, self.buffer = (self.buffer + data).split(b"\n")
        return list(map(json.loads, reports))

    def forget_output(self) -> None:
        """Truncate the file with the worker's output."""
        os.ftruncate(self.output.fileno(), 0)

    def read_tail(self) -> str:
        """Return the last lines of the worker's standard output and error."""
        fd = self.output.fileno()
        start = max(0, os.fstat(fd).st_size - _TAIL_BYTES)
        # pread, because the worker shares the file offset and may still be writing.
        lines = os.pread(fd, _TAIL_BYTES, start).decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def describe_death(self) -> str:
        """Describe how a worker whose pipe has closed ended: its signal or exit status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_GRACE_S)
        code = self.process.poll()
        if code is None:
            return "it closed its pipe but did not exit"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def kill(self) -> None:
        """Kill the worker and all processes of its group, and wait for the worker."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Kill the worker and close its pipes and its file. A second call has no effect."""
        if self.output.closed:
            return
        self.kill()
        os.close(self.messages)
        os.close(self.reports)
        self.output.close()


def end_all(workers: MutableSequence[Any], owner: int) -> None:
    """End all workers of a list and clear it; in a fork of the owner, only clear it.

    Args:
        workers: objects with an ``end`` method.
        owner: the id of the process that started them.
    """
    if os.getpid() == owner:
        for worker in workers:
            worker.end()
    workers.clear()
