"""The resources that each test gets new in tier ``namespaces``: pid namespace, working folder."""

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
from gapft_harness.sandbox.confinement.syscalls import check_result, libc

_CLONE_VM = 0x100
_FIRST_STACK = 1 << 14


class PidNamespaces:
    """Create a pid namespace for each test, with a first process that only waits.

    The test must not be the first process of its namespace, because the kernel ignores signals with
    a default action there: ``signal.alarm`` would not end the program as it does outside.
    """

    def __init__(self) -> None:
        self._own = os.pidfd_open(os.getpid())
        self._first = 0
        stack = ctypes.create_string_buffer(_FIRST_STACK)
        self._keep = stack  # the first process uses it
        top = (ctypes.addressof(stack) + _FIRST_STACK) & ~15
        # It shares the worker's memory and never leaves libc, so no page is copied for it.
        self._arguments = (
            ctypes.cast(libc.pause, ctypes.c_void_p),
            ctypes.c_void_p(top),
            _CLONE_VM | signal.SIGCHLD,
            None,
        )

    def open(self) -> None:
        """Create a new namespace for the next forks."""
        check_result(libc.unshare(NEWPID), "unshare(NEWPID)")
        self._first = check_result(libc.clone(*self._arguments), "clone of a first process")

    def leave(self) -> None:
        """Return to the worker's own namespace, from which the next one must be created."""
        check_result(libc.setns(self._own, NEWPID), "setns(NEWPID)")

    def end(self) -> None:
        """Kill the namespace's first process; the kernel then ends all its other processes."""
        os.kill(self._first, signal.SIGKILL)

    def close(self) -> None:
        """Wait until the namespace has ended."""
        os.waitpid(self._first, 0)


class WorkFolder:
    """The working folder of a test: a new file system of limited size.

    A file system that was not changed is used again. Every change sets its ctime, which is a
    reliable mark if a clock tick has passed since the mount.
    """

    def __init__(self, path: str, disk_bytes: int, files: int) -> None:
        self._path = path
        self._options = f"size={disk_bytes},nr_inodes={files + 1},mode=755"
        self._mount()

    def _mount(self) -> None:
        mount("tmpfs", self._path, "tmpfs", NOSUID | NODEV | NOEXEC | NOATIME, self._options)
        self._mark = self._read_state()
        self._is_mark_reliable = False

    def prepare(self) -> None:
        """Change into the folder; call it before a fork."""
        if not self._is_mark_reliable:
            coarse_ns = time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, of file time stamps
            self._is_mark_reliable = self._mark[0] < coarse_ns
        os.chdir(self._path)

    def clean(self) -> None:
        """Replace a changed file system; call it after the test's process has ended."""
        os.chdir("/")
        if not self._is_mark_reliable or self._read_state() != self._mark:
            check_result(libc.umount2(self._path.encode(), DETACH), "umount of the working folder")
            self._mount()

    def _read_state(self) -> tuple[int, ...]:
        status = os.stat(self._path)
        usage = os.statvfs(self._path)
        return (status.st_ctime_ns, status.st_mode, usage.f_bfree, usage.f_ffree)
