"""Locks between processes, also on a network file system that has none of its own.

There a file stands for the lock, with its holder's host and process id: one of a dead process of
this host is taken over.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

#: What a file system says that has no locks, or whose lock server cannot be reached.
_WITHOUT_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK)


def has_no_locks(error: OSError) -> bool:
    """Whether an error of a lock call says that the file system has no locks."""
    return error.errno in _WITHOUT_LOCKS


@contextlib.contextmanager
def hold_lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a lock while the block runs.

    Args:
        path: its file, which is removed at the end; a soft lock's has ``soft`` behind its name.
        wait: until whoever holds it is done; otherwise the block runs without it.

    Yields:
        Whether it is held.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        yield False
        return
    except OSError as error:
        if not has_no_locks(error):
            raise
        path.unlink(missing_ok=True)
        soft = path.with_name(f"{path.name}soft")
        with hold_soft_lock(soft, -1 if wait else 0) as held:
            yield held
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # while it is held: not another one's lock
        lock.release()


@contextlib.contextmanager
def hold_soft_lock(path: Path, patience_s: float) -> Iterator[bool]:
    """Hold a lock that a file stands for while the block runs.

    Args:
        path: the file; whose process is dead, on this host, is taken over.
        patience_s: how long to wait for another holder; -1: until it is done.

    Yields:
        Whether it is held.

    Raises:
        OSError: the file cannot be written.
    """
    lock = SoftFileLock(path)
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
