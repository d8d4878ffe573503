"""The lock of a run directory: one writing process at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import PARTIAL, not_writable_error
from gapft_harness.core.locks import has_no_locks, hold_soft_lock

#: Lock files in a run directory: one for the command, one for its jobs (executors).
RUN_LOCK, JOBS_LOCK = "run.lock", "jobs.lock"

#: Replaces ``run.lock`` on file systems without locks.
SOFT_LOCK = f".{RUN_LOCK}{PARTIAL}"

#: Seconds after which the soft lock of a dead process counts as stale.
_STALE_AFTER_S = 2.0


@contextlib.contextmanager
def hold_run_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a run directory while the block runs; check that it can be written.

    Args:
        path: the run directory; it is created if it does not exist.

    Raises:
        UserError: another process holds the lock (the message has its id and start time), or the
            folder cannot be written.
        GapftError: the disk is full.
    """
    import fcntl  # not on Windows

    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / RUN_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _not_writable_error(path, error) from error
    with (
        contextlib.closing(os.fdopen(descriptor, "r+b", buffering=0)) as file,
        contextlib.ExitStack() as stack,
    ):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use_error(path, file.read()) from error
        except OSError as error:
            if not has_no_locks(error):
                raise _not_writable_error(path, error) from error
            try:
                is_held = stack.enter_context(hold_soft_lock(path / SOFT_LOCK, _STALE_AFTER_S))
            except OSError as soft_lock_error:
                raise _not_writable_error(path, soft_lock_error) from soft_lock_error
            if not is_held:
                raise _in_use_error(path, file.read()) from error
            for job_lock in path.glob(f".{JOBS_LOCK}.*{PARTIAL}"):
                with hold_soft_lock(job_lock, _STALE_AFTER_S):
                    pass  # a dead process's lock is removed
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        holder = f"process {os.getpid()} on {platform.node()} since {since}\n".encode()
        try:
            file.write(holder)
            file.truncate(len(holder))
            # The folder may have become read-only after an earlier command made the lock file.
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise _not_writable_error(path, error) from error
        yield


def _in_use_error(path: Path, holder: bytes) -> UserError:
    holder_name = holder.decode(errors="replace").strip() or "another process"
    return UserError(
        f"run directory {path}: in use by {holder_name}; wait for it, or use another --run-dir"
    )


def _not_writable_error(path: Path, error: OSError) -> GapftError:
    """Build a ``GapftError`` for a full disk, a ``UserError`` for any other reason."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return not_writable_error(path, error)
    return UserError(f"run directory {path}: cannot be written: {error.strerror}")
