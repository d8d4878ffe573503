"""What each test gets anew in tier ``namespaces``: a pid namespace and a working folder."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from gapft_harness.sandbox.confinement.namespaces import (
    DETACH,
    NEWPID,
    NOATIME,
    NODEV,
    NOEXEC,
    NOSUID,
    mount,
)
from gapft_harness.sandbox.confinement.syscalls import check, libc

_CLONE_VM, _FIRST_STACK = 0x100, 1 << 14


class PidNamespaces:
    """Gives each test a pid namespace of its own, with a first process that only waits.

    The test is not the first process: signals whose default action is to end a process do nothing
    to that one, so that ``signal.alarm`` would not end a program as it does outside.
    """

    def __init__(self) -> None:
        self._own = os.pidfd_open(os.getpid())
        self._first = 0
        stack = ctypes.create_string_buffer(_FIRST_STACK)
        self._keep = stack  # the first process stands on it
        top = (ctypes.addressof(stack) + _FIRST_STACK) & ~15
        # It shares the worker's memory and never leaves libc: making it copies nothing.
        self._arguments = (
            ctypes.cast(libc.pause, ctypes.c_void_p),
            ctypes.c_void_p(top),
            _CLONE_VM | signal.SIGCHLD,
            None,
        )

    def open(self) -> None:
        """The next forks' children are in a new namespace."""
        check(libc.unshare(NEWPID), "unshare(NEWPID)")
        self._first = check(libc.clone(*self._arguments), "clone of a first process")

    def leave(self) -> None:
        """Forks go where they went before; a namespace is made only from one's own."""
        check(libc.setns(self._own, NEWPID), "setns(NEWPID)")

    def end(self) -> None:
        """Begins to end the namespace, with all that might be left in it."""
        os.kill(self._first, signal.SIGKILL)

    def close(self) -> None:
        """Waits until it has ended."""
        os.waitpid(self._first, 0)


class WorkFolder:
    """The working folder: a file system of limited size, fresh for every test.

    A mounted one that nothing touched is used again: its ctime moves with every change to it, and
    a clock tick must have passed since it was mounted, so that no change can share its ctime.
    """

    def __init__(self, path: str, disk_bytes: int, files: int) -> None:
        self._path = path
        self._options = f"size={disk_bytes},nr_inodes={files + 1},mode=755"
        self._mount()

    def _mount(self) -> None:
        mount("tmpfs", self._path, "tmpfs", NOSUID | NODEV | NOEXEC | NOATIME, self._options)
        self._mark = self._state()
        self._sure = False

    def prepare(self) -> None:
        """Call before a fork: stands in it."""
        if not self._sure:
            self._sure = self._mark[0] < _coarse_clock()
        os.chdir(self._path)

    def untouched(self) -> bool:
        """Whether nothing has changed in it since it was mounted."""
        return self._state() == self._mark

    def clean(self) -> None:
        """Call when the test's process has ended: what it left is gone, and a new one there."""
        os.chdir("/")
        if not self._sure or not self.untouched():
            check(libc.umount2(self._path.encode(), DETACH), "umount of the working folder")
            self._mount()

    def _state(self) -> tuple[int, ...]:
        status, usage = os.stat(self._path), os.statvfs(self._path)
        return (status.st_ctime_ns, status.st_mode, usage.f_bfree, usage.f_ffree)


def _coarse_clock() -> int:
    return time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, what file systems stamp with
