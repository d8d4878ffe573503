"""The harness's side of one worker: start it, send programs, receive outcomes, kill it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from gapft_harness.core.processes import build_thread_environment, open_standard_streams
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.inside.messages import Ending, unpack_ending
from gapft_harness.sandbox.records import WALL_PER_CPU_SECOND, Limits, Prelude, Program, Tier
from gapft_harness.sandbox.verdicts import TestOutcome

#: A worker that is not ready by then counts as hung: many may start at the same time.
_START_SECONDS = 300.0
#: Seconds after twice a test's longest time at which a worker counts as hung.
_GRACE_SECONDS = 60.0
#: Maximum bytes of standard error in an outcome.
_ERROR_BYTES = 4096
_BOOT = """
import json, sys, types
for name, path in json.loads(sys.argv[1]).items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from gapft_harness.sandbox.inside.execute import main
from gapft_harness.sandbox.inside.worker import start
worker = start(json.loads(sys.argv[2]), json.loads(sys.argv[3]))
del name, path, sys.argv[1:], sys.orig_argv[1:]
worker.serve()
main()
"""
_ENVIRONMENT = {
    # With a fixed hash seed the order of sets is reproducible, and so is a program's outcome.
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    **build_thread_environment(1),
    # Each thread's own heap would reserve 64 MiB of address space.
    "MALLOC_ARENA_MAX": "1",
    # Otherwise each fork would resolve again the C functions that only forks call.
    "LD_BIND_NOW": "1",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
}
_OUTSIDE_IDS = 1_879_048_192


class WorkerDied(Exception):
    """A worker ended or did not answer: a failure of the harness or of the machine."""


class NotConfined(Exception):
    """A program's process could not be confined. Unlike with ``WorkerDied``, the worker lives."""


@dataclass(slots=True, eq=False)
class SandboxWorker:
    """One worker process; ``inside/worker.py`` is the code that runs in it."""

    limits: Limits
    process: subprocess.Popen[bytes]
    control: socket.socket
    stderr: IO[bytes]
    deadline: float
    _files: list[int] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        tier: Tier,
        limits: Limits,
        preload: Sequence[str],
        prelude: Prelude = "none",
    ) -> SandboxWorker:
        """Start a worker; ``wait_ready`` waits for it.

        Args:
            tier: the method of confinement.
            limits: the limits of each test.
            preload: the modules to import.
            prelude: the names that programs have without import; see ``Sandbox``.
        """
        open_standard_streams()
        own_socket, worker_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        package = Path(__file__).resolve().parent
        packages = {"gapft_harness": str(package.parent), "gapft_harness.sandbox": str(package)}
        settings = {
            "tier": tier,
            "control": worker_socket.fileno(),
            "high_id": _choose_unused_id() if os.geteuid() == 0 else None,
            "preload": list(preload),
            "prelude": prelude,
            "path": [os.path.abspath(entry) for entry in sys.path],
        }
        libraries = {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-s", "-S", "-P", "-c", _BOOT),
                    *map(json.dumps, (packages, settings, asdict(limits))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=_ENVIRONMENT | libraries,
                cwd="/",
                pass_fds=[worker_socket.fileno()],
                start_new_session=True,
            )
        except BaseException:
            own_socket.close()
            stderr.close()
            raise
        finally:
            worker_socket.close()
        return cls(limits, process, own_socket, stderr, time.monotonic() + _START_SECONDS)

    def wait_ready(self) -> None:
        """Wait until the worker is confined and has imported its modules.

        Raises:
            Refused: the tier does not work on this machine; the message names the refused call.
            WorkerDied: the worker ended or did not answer.
        """
        message = json.loads(self._receive(max(0.0, self.deadline - time.monotonic())))
        if "refused" in message:
            raise Refused(message["refused"])
        self.deadline = float("inf")

    def send(self, source: bytes, test_input: bytes) -> None:
        """Send the worker a test to execute.

        Args:
            source: the packed program, from ``pack_program``.
            test_input: standard input, or the arguments of a function.
        """
        while len(self._files) < 5:
            self._files.append(os.memfd_create("", os.MFD_CLOEXEC))
        _write_all(self._files[0], test_input)
        os.lseek(self._files[0], 0, os.SEEK_SET)
        _write_all(self._files[4], source)
        # ``receive`` detects a worker that has died.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [b"t"], self._files)
        longest_s = self.limits.wall_s + WALL_PER_CPU_SECOND * self.limits.cpu_s
        self.deadline = time.monotonic() + 2 * longest_s + _GRACE_SECONDS

    def receive(self) -> TestOutcome:
        """Receive the outcome of the test that was sent.

        Raises:
            WorkerDied: the worker ended or did not answer.
            NotConfined: the program's process could not be confined, and did not start.
        """
        ending = unpack_ending(self._receive(max(0.0, self.deadline - time.monotonic())))
        self.deadline = float("inf")
        try:
            if ending.setup:
                raise NotConfined(ending.setup)
            return self._read_outcome(ending)
        finally:
            self._renew_files()

    def _read_outcome(self, ending: Ending) -> TestOutcome:
        """Read what the ended process left in its files."""
        output, errors, report = self._files[1:4]
        sizes = [os.fstat(file).st_size for file in (output, errors, report)]
        limit = self.limits.output_bytes
        return TestOutcome(
            ending,
            output=_read_range(output, 0, min(sizes[0], limit)),
            output_bytes=max(sizes),
            errors=_read_range(errors, max(0, sizes[1] - _ERROR_BYTES), _ERROR_BYTES),
            report=_read_range(report, 0, min(sizes[2], limit)),
        )

    def kill(self) -> str:
        """End the worker and its program, and describe how the worker ended."""
        self.control.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        while self._files:
            os.close(self._files.pop())
        self.stderr.seek(0)
        last = self.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        self.stderr.close()
        return f"ended with {code}{': ' if last else ''}{last[:300]}"

    def _receive(self, seconds: float) -> bytes:
        self.control.settimeout(seconds or 0.001)
        try:
            data = self.control.recv(1 << 16)
        except TimeoutError:
            raise WorkerDied("no answer in time") from None
        except ConnectionResetError:
            data = b""
        if not data:
            raise WorkerDied("its connection closed")
        return data

    def _renew_files(self) -> None:
        """Reset size, offset, flags, mode and times of the files after a program's process ended.

        All tests use the same files: the inode number of a new file would reveal how many were
        created before, and a program can create such files itself (by mapping shared memory).
        """
        import fcntl  # not on Windows

        for file in self._files:
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)
            os.fchmod(file, 0o777)
            os.utime(file)
            fcntl.fcntl(file, fcntl.F_SETFL, 0)


def pack_program(program: Program) -> bytes:
    """Pack a program for its process: a header line of two fields, then the source."""
    name = unicodedata.normalize("NFKC", program.function or "")  # Python normalizes names so
    header = f"{program.kind}\t{name}\n"
    return header.encode() + program.source.encode("utf-8", "surrogatepass")


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _read_range(file: int, start: int, size: int) -> bytes:
    data = b""
    while size > len(data) and (more := os.pread(file, size - len(data), start + len(data))):
        data += more
    return data


_ids = iter(range(1 << 62))


def _choose_unused_id() -> int:
    """Choose a user id that no account has, so that per-user limits apply to one worker only."""
    first = length = 0
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, count = map(int, line.split())
        first, length = max((first, length), (inside, count))
    step = (os.getpid() * 64 + next(_ids)) % 1_000_000
    if first + length > _OUTSIDE_IDS + 1_000_000:
        return _OUTSIDE_IDS + step
    # The container has few ids: use its highest ones.
    return first + length - 1 - step % max(1, length // 8)
