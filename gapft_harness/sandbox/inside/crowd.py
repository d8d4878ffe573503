"""What else runs on the machine, as far as it bears on one test's process.

Wall time ends a program that waits, and waiting for a CPU that others use does not count: on a
crowded machine a program gets the verdict that it gets on a quiet one.
"""

from __future__ import annotations

import os
import resource

#: Seconds between two looks at how long a process had to wait.
LOOK_EVERY = 0.1


class Crowd:
    """The worker's view of the process that it runs, in ``/proc`` as the harness sees it.

    In its own namespaces a worker neither sees ``/proc`` nor knows the process's number there: it
    keeps a descriptor of the one, and reads the other from what it says of the process's handle.

    Args:
        share: workers a usable core, at least 1: stands for what the kernel does not tell.
        threads: most threads of a program, where only the worker can hold it to them; else None.

    Attributes:
        counts_threads: whether ``check_threads`` must be called, and often.
    """

    def __init__(self, share: float, threads: int | None) -> None:
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._share = share
        self._threads = threads
        self.counts_threads = threads is not None
        self._handle = -1
        self._known = ""
        self._waits: dict[str, float] = {}
        self._waited = 0.0

    def meet(self, handle: int) -> None:
        """A new process, by its pidfd."""
        self._handle, self._known = handle, ""
        self._waits, self._waited = {}, 0.0

    def excused(self, used: float) -> float:
        """Seconds in which it ran, or was ready to run while others did.

        Call it every ``LOOK_EVERY`` seconds. Threads that wait at the same time wait once, and for
        each other they do not wait for others: of the time between two calls, what the thread lost
        that lost most is taken for what the program lost.

        Args:
            used: CPU seconds it has used.
        """
        try:
            folder = os.open(f"{self._number()}/task", os.O_RDONLY, dir_fd=self._proc)
            try:
                threads = os.listdir(folder)
            finally:
                os.close(folder)
            waits = {
                thread: int(self._read(f"task/{thread}/schedstat").split()[1]) / 1e9
                for thread in threads
            }
            before = self._waits
            self._waited += max(wait - before.get(thread, 0.0) for thread, wait in waits.items())
            self._waits = waits
        except (OSError, ValueError, IndexError):  # it ended just now, or nothing is told here
            pass
        return used + max(self._waited, (self._share - 1) * used)

    def check_threads(self, process: int) -> None:
        """Lets a process with too many threads start no more.

        Args:
            process: its number for the worker.
        """
        assert self._threads is not None
        try:
            fields = self._read("stat").rpartition(b")")[2].split()
            if int(fields[17]) > self._threads + 1:
                resource.prlimit(process, resource.RLIMIT_NPROC, (0, 0))
        except (FileNotFoundError, ProcessLookupError):  # ended
            pass

    def _number(self) -> str:
        if not self._known:
            told = self._read_file(f"self/fdinfo/{self._handle}").decode()
            self._known = told.partition("\nPid:")[2].split()[0]
        return self._known

    def _read(self, path: str) -> bytes:
        return self._read_file(f"{self._number()}/{path}")

    def _read_file(self, path: str) -> bytes:
        file = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(file, 4096)
        finally:
            os.close(file)
