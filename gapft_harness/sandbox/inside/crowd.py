"""What else runs on the machine, as far as it bears on one test's process.

Wall time ends a program that waits, and waiting for a CPU that others use does not count: on a
crowded machine a program gets the verdict that it gets on a quiet one.
"""

from __future__ import annotations

import os
import resource
import select

#: Bytes in which a process tells its number in ``/proc``.
_NAME_BYTES = 8
_NO_NAME = b"none yet"


class Crowd:
    """The worker's view of the process that it runs, in ``/proc`` as the harness sees it.

    In its own namespaces a worker neither sees ``/proc`` nor knows that number: it keeps a
    descriptor of the one, and the process tells the other before the program runs.

    Args:
        share: workers a usable core, at least 1: stands for what the kernel does not tell.
        threads: most threads of a program, where only the worker can hold it to them; else None.
    """

    def __init__(self, share: float, threads: int | None) -> None:
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._share = share
        self._threads = threads
        self._begun = -1
        self._known = ""

    @property
    def counts_threads(self) -> bool:
        """Whether ``check_threads`` must be called, and often."""
        return self._threads is not None

    def introduce(self, begin: int) -> None:
        """In the process itself, first of all: tells its number, or that it finds none."""
        name = _NO_NAME
        try:
            name = os.readlink(b"self", dir_fd=self._proc)
        finally:
            os.write(begin, name.ljust(_NAME_BYTES))

    def meet(self, begun: int) -> None:
        """A new process; from ``begun`` its number can be read, and then whatever it writes."""
        self._begun, self._known = begun, ""

    def last_words(self) -> str:
        """What the process wrote after its number. Waits for it."""
        if not self._known:
            os.read(self._begun, _NAME_BYTES)
        self._known = ""  # the next process must not find it
        return os.read(self._begun, 1000).decode(errors="replace")

    def excused(self, used: float) -> float:
        """Seconds in which its threads ran, or were ready to run while others did.

        Args:
            used: CPU seconds it has used.
        """
        waited = (self._share - 1) * used
        try:
            folder = os.open(f"{self._name()}/task", os.O_RDONLY, dir_fd=self._proc)
            try:
                threads = os.listdir(folder)
            finally:
                os.close(folder)
            waits = [self._read(f"task/{thread}/schedstat").split()[1] for thread in threads]
            waited = max(waited, sum(map(int, waits)) / 1e9)
        except (OSError, ValueError, IndexError):  # it ended just now, or nothing is told here
            pass
        return used + waited

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
        except (FileNotFoundError, ProcessLookupError):  # not begun, or ended
            pass

    def _name(self) -> str:
        if not self._known and select.select([self._begun], [], [], 0)[0]:
            self._known = os.read(self._begun, _NAME_BYTES).decode().strip()
        return self._known or _NO_NAME.decode()

    def _read(self, path: str) -> bytes:
        file = os.open(f"{self._name()}/{path}", os.O_RDONLY, dir_fd=self._proc)
        try:
            return os.read(file, 4096)
        finally:
            os.close(file)
