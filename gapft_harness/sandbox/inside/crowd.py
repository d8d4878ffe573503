"""Measure how much other processes on the machine delay the process of one test.

The wall limit stops a program that waits, but waiting for a busy CPU does not count: a program gets
the same verdict on a busy machine as on an idle one.
"""

from __future__ import annotations

import os
import resource

#: Seconds between two measurements of a process's waiting time.
LOOK_INTERVAL_S = 0.1


class Crowd:
    """Read the state of a worker's test process from the harness's ``/proc``.

    Inside its namespaces a worker can neither see that ``/proc`` nor know the process's id there:
    it keeps a descriptor of the folder, and reads the id from the ``fdinfo`` of the process's
    pidfd.

    Args:
        share: the number of workers per usable core, at least 1: an estimate of the delay if the
            kernel does not report it.
        threads: maximum threads of a program if the worker must enforce the limit; else None.

    Attributes:
        counts_threads: whether ``check_threads`` must be called, and often.
    """

    def __init__(self, share: float, threads: int | None) -> None:
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._share = share
        self._threads = threads
        self.counts_threads = threads is not None
        self._handle = -1
        self._pid = ""
        self._waits: dict[str, float] = {}
        self._waited = 0.0

    def watch_process(self, handle: int) -> None:
        """Start to watch a new process, given by its pidfd."""
        self._handle, self._pid = handle, ""
        self._waits, self._waited = {}, 0.0

    def compute_excused_time(self, used: float) -> float:
        """Compute the seconds in which the process ran, or was ready to run but had no CPU.

        Call it every ``LOOK_INTERVAL_S`` seconds. Threads that wait at the same time must not be
        counted several times, so between two calls the waiting time of the program is that of the
        thread that waited longest.

        Args:
            used: CPU seconds that the process has used.
        """
        try:
            folder = os.open(f"{self._find_pid()}/task", os.O_RDONLY, dir_fd=self._proc)
            try:
                threads = os.listdir(folder)
            finally:
                os.close(folder)
            waits = {
                thread: int(self._read_process_file(f"task/{thread}/schedstat").split()[1]) / 1e9
                for thread in threads
            }
            previous_waits = self._waits
            self._waited += max(
                wait - previous_waits.get(thread, 0.0) for thread, wait in waits.items()
            )
            self._waits = waits
        except (OSError, ValueError, IndexError):  # the process ended, or there is no schedstat
            pass
        return used + max(self._waited, (self._share - 1) * used)

    def check_threads(self, process: int) -> None:
        """Prevent a process with too many threads from starting further threads.

        Args:
            process: its id in the worker's namespace.
        """
        assert self._threads is not None
        try:
            fields = self._read_process_file("stat").rpartition(b")")[2].split()
            if int(fields[17]) > self._threads + 1:
                resource.prlimit(process, resource.RLIMIT_NPROC, (0, 0))
        except (FileNotFoundError, ProcessLookupError):  # ended
            pass

    def _find_pid(self) -> str:
        if not self._pid:
            info = self._read_file(f"self/fdinfo/{self._handle}").decode()
            self._pid = info.partition("\nPid:")[2].split()[0]
        return self._pid

    def _read_process_file(self, path: str) -> bytes:
        return self._read_file(f"{self._find_pid()}/{path}")

    def _read_file(self, path: str) -> bytes:
        file = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(file, 4096)
        finally:
            os.close(file)
