"""Fork without Python's own handlers, and keep a worker and its fork on one CPU."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.PyDLL(None)  # keeps the interpreter lock: the worker has no other thread


class OneCpu:
    """Pin a worker and its forks to the CPU where the worker runs.

    A small test takes one or two milliseconds, in which the worker and the fork mostly wait for
    each other. The scheduler would put each new process on a different CPU, which a different
    worker needs or whose cache has none of the pages; CPUs would be idle for a fifth of the time.
    """

    def __init__(self) -> None:
        self._previous_cpus: set[int] | None = None

    def pin(self) -> None:
        """Pin this process and its later forks to the current CPU."""
        try:
            previous_cpus = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {_libc.sched_getcpu()})
        except (OSError, ValueError):  # not permitted or not supported: tests only take longer
            self._previous_cpus = None
        else:
            self._previous_cpus = previous_cpus

    def unpin(self) -> None:
        """Restore the previous CPU affinity of this process."""
        if self._previous_cpus is not None:
            os.sched_setaffinity(0, self._previous_cpus)


def fork() -> int:
    """Fork without Python's own handlers, which copy pages and reseed ``random``.

    The handlers repair locks that other threads hold, but the worker has no other threads. Without
    them, every program starts with the same random state, so its answers are reproducible.
    """
    child: int = _libc.fork()
    if child < 0:
        raise OSError("fork failed")
    return child
