"""Worker processes: how they begin, their parent as they see it, and how the parent drives them.

Messages are frames of JSON on two pipes of their own: a length of four bytes, then the text. What
the process prints goes to a file, of which an error shows the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self, cast

_PR_SET_PDEATHSIG = 1


def thread_limits(threads: int) -> dict[str, str]:
    """What a child's environment says of the threads that its libraries may take.

    Threads that wait for each other sleep, unless the environment says otherwise: where they spin,
    two of them are slower than one as soon as another process wants their cores.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    waiting = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    return {**dict.fromkeys(names, str(threads)), **waiting}


def open_standard_streams() -> None:
    """Opens descriptors 0 to 2 where they are closed, so that nothing else gets these numbers.

    Whoever starts a process moves its streams onto these numbers: what it is handed besides, under
    one of them, would be lost.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, where the kernel can (Linux).

    The listening thread does the same everywhere, but not while a long call in C keeps the
    interpreter's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


class Closing(ABC):
    """Base class of what holds processes or files: ``with`` calls ``close()`` at its end.

    A verifier derived from it is closed by the harness when the stage ends.
    """

    @abstractmethod
    def close(self) -> None:
        """Ends what it holds. Closing twice is no error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def collect_seldom() -> None:
    """Look for garbage after 50,000 new objects, not after 700 or 2,000 as Python does by default.

    Importing torch, transformers and lm_eval makes hundreds of thousands of objects and next to no
    garbage, and so does reading responses: a sixth of that time went into looking for it.
    """
    gc.set_threshold(50_000)


#: How a frame begins: the bytes that follow.
LENGTH = struct.Struct(">I")


def framed(content: bytes) -> bytes:
    """JSON as it goes over a pipe."""
    return LENGTH.pack(len(content)) + content


def resolve(function: str) -> Callable[..., Any]:
    """The function that ``module:name`` names."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def begin(serve: str, pipes: Sequence[int], arguments: Sequence[Any]) -> None:
    """What a worker does first: it keeps to its pipes and calls what it is there for.

    Args:
        serve: ``module:name`` of a function of a ``Parent`` and ``arguments``.
        pipes: the ends that messages arrive on and reports leave by.
    """
    collect_seldom()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    for fd in pipes:
        os.set_inheritable(fd, False)
    for stream in (sys.stdout, sys.stderr):
        # Both are a file here, and what is still buffered in a killed process is lost.
        cast(Any, stream).reconfigure(line_buffering=True, errors="backslashreplace")
    resolve(serve)(Parent(*pipes), *arguments)


class Parent:
    """The parent of this process."""

    def __init__(self, messages: int, reports: int) -> None:
        """Takes the pipes' ends that messages arrive on and reports leave by."""
        self._messages = os.fdopen(messages, "rb")
        self._reports = reports

    def messages(self) -> Iterator[bytes]:
        """Yields its messages, JSON each, until it closes the pipe or dies."""
        while len(head := self._messages.read(LENGTH.size)) == LENGTH.size:
            (length,) = LENGTH.unpack(head)
            content = self._messages.read(length)
            if len(content) < length:
                return
            yield content

    def tell(self, content: bytes) -> None:
        """Sends it a report, JSON; ends this process if it is gone."""
        view = memoryview(framed(content))
        try:
            while view:
                view = view[os.write(self._reports, view) :]
        except BrokenPipeError:
            os._exit(1)


_BOOT = (
    "import json, sys; path, *arguments = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from gapft_harness.core.processes import begin; begin(*arguments)"
)

#: Seconds a worker whose pipe has closed may take to end by itself, so that its own exit status is
#: seen and not that of being killed.
_LAST_BREATH_S = 5.0

#: Bytes and lines of a worker's output that an error shows.
_TAIL_BYTES, _TAIL_LINES = 16384, 20


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One worker process.

    Attributes:
        process: the process, in a session of its own.
        output: the file that its standard output and error go to.
        messages: the pipe's end that messages leave by.
        reports: the pipe's end that reports arrive on.
    """

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    messages: int
    reports: int
    buffer: bytes = b""

    @classmethod
    def start(cls, serve: str, arguments: Sequence[Any], environment: Mapping[str, str]) -> Self:
        """Starts one; does not wait for it.

        Args:
            serve: ``module:name`` of what it calls with its ``Parent`` and the arguments.
            environment: what it has besides this process's environment.
        """
        open_standard_streams()
        path = [os.path.abspath(entry) for entry in sys.path]
        output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        # Appending, so that it can be emptied while the worker writes to it.
        flags = fcntl.fcntl(output, fcntl.F_GETFL)
        fcntl.fcntl(output, fcntl.F_SETFL, flags | os.O_APPEND)
        take_messages, messages = os.pipe()
        reports, give_reports = os.pipe()
        os.set_blocking(reports, False)
        told = json.dumps([path, serve, [take_messages, give_reports], arguments])
        try:
            process = subprocess.Popen(
                # A fresh interpreter, not a fork, which would copy the parent's threads' locks and
                # torch. With the parent's import path it finds the same packages.
                [sys.executable, "-s", "-c", _BOOT, told],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                pass_fds=(take_messages, give_reports),
                start_new_session=True,  # the terminal's Ctrl-C goes to the parent alone
            )
        except BaseException:
            os.close(messages)
            os.close(reports)
            output.close()
            raise
        finally:
            # Only the child may hold these, or neither side would see the other's end close.
            os.close(take_messages)
            os.close(give_reports)
        return cls(process, output, messages, reports)

    def send(self, message: Any) -> None:
        """Gives it a message. That it died meanwhile is noticed when its reports close."""
        view = memoryview(framed(json.dumps(message).encode()))
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[os.write(self.messages, view) :]

    def receive(self) -> list[Any] | None:
        """The reports that arrived, perhaps none; None when it is dead and all has been read."""
        try:
            data = os.read(self.reports, 1 << 16)
        except BlockingIOError:  # a child of a dead worker may still hold its end of the pipe
            return [] if self.process.poll() is None else None
        if not data:
            return None
        data, start, reports = self.buffer + data, 0, []
        while len(data) >= (content := start + LENGTH.size):
            end = content + LENGTH.unpack_from(data, start)[0]
            if len(data) < end:
                break
            reports.append(json.loads(data[content:end]))
            start = end
        self.buffer = data[start:]
        return reports

    def forget_output(self) -> None:
        """Empties the file of what it printed."""
        os.ftruncate(self.output.fileno(), 0)

    def tail(self) -> str:
        """The last lines that it wrote to standard output and error."""
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

    def kill(self) -> None:
        """Kills it and all in its session's group, and waits for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Kills it and lets go of all that it holds here. Ending twice is no error."""
        if self.output.closed:
            return
        self.kill()
        os.close(self.messages)
        os.close(self.reports)
        self.output.close()


def end_all(workers: MutableSequence[Any], owner: int) -> None:
    """Ends all workers of a list and empties it; in a fork of the owner it leaves them alone."""
    if os.getpid() == owner:
        for worker in workers:
            worker.end()
    workers.clear()
