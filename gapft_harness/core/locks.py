"""Locks between processes, also on a network file system that has none of its own.

There a file stands for the lock, with its holder's host and process id: one of a dead process of
this host is taken over.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

#: What a file system says that has no locks, or whose lock server cannot be reached.
_WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)

#: Seconds after which the file of a dead process counts as stale.
_STALE_AFTER_S = 2.0


@contextlib.contextmanager
def hold_lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock while the block runs.

    Args:
        path: its file, which is removed at the end. The holder may write to it.
        wait: until whoever holds it is done; otherwise the block runs without it.

    Yields:
        Whether it is held.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        lock = _acquire(path, wait=wait)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # while it is held: not another one's lock
        lock.release()


def _acquire(path: Path, *, wait: bool) -> BaseFileLock:
    lock: BaseFileLock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except OSError as error:  # a Timeout has no number
        if error.errno not in _WITHOUT_LOCKS:
            raise
        lock = SoftFileLock(path.with_name(f"{path.name}soft"))
        lock.acquire(timeout=-1 if wait else _STALE_AFTER_S)
    return lock
