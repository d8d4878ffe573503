"""How a worker forks: without Python's own handlers, and on the CPU where it runs."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.PyDLL(None)  # keeps the interpreter lock: there is nobody to give it to


class OneCpu:
    """Holds a worker, and what it forks, on the CPU where it runs.

    A small test takes a millisecond or two, in which the worker and the fork mostly wait for each
    other. The scheduler would put each new process on another CPU, which another worker needs or
    which has none of the pages in its cache, and CPUs would be idle for a fifth of the time.
    """

    def __init__(self) -> None:
        self._usual: set[int] | None = None

    def hold(self) -> None:
        """This process, and its forks from now on, use no other CPU."""
        try:
            usual = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {_libc.sched_getcpu()})
        except (OSError, ValueError):  # not allowed or known here: a test takes longer, no more
            self._usual = None
        else:
            self._usual = usual

    def release(self) -> None:
        """This process uses all CPUs that it used before."""
        if self._usual is not None:
            os.sched_setaffinity(0, self._usual)


def fork() -> int:
    """Forks without Python's own handlers, which copy pages and reseed ``random``.

    They repair locks that other threads hold: the worker has no other threads. As it is, every
    program starts with the same random state, and so gives the same answer each time.
    """
    child: int = _libc.fork()
    if child < 0:
        raise OSError("fork failed")
    return child
