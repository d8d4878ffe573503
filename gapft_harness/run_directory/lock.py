"""The lock of a run directory: one writing process at a time."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import is_disk_full, not_writable_error

#: The lock file in a run directory. It names the process of the command, and ends with it.
RUN_LOCK = "run.lock"

#: Seconds after which a lock that a dead process left on a file system without locks is stale.
_STALE_AFTER_S = 2.0


@contextlib.contextmanager
def hold_run_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a run directory while the block runs; check that it can be written.

    Args:
        path: the run directory; it is created if it does not exist.

    Raises:
        UserError: another process holds the lock (the message has its id), or the folder cannot be
            written.
        GapftError: the disk is full.
    """
    import fcntl  # noqa: F401  # a system without it cannot run jobs either

    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

    file = path / RUN_LOCK
    lock = cast(BaseFileLock, FileLock(file))  # a soft one if the file system has no locks
    with contextlib.ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock.acquire(timeout=_STALE_AFTER_S))
            if not isinstance(lock, SoftFileLock):  # its own content names the process
                stack.callback(_remove, file)  # while it is held: not another one's lock
                since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                file.write_text(
                    f"process {os.getpid()} on {platform.node()} since {since}\n", "utf-8"
                )
            # The folder may have become read-only after an earlier command made the lock file.
            with tempfile.TemporaryFile(dir=path):
                pass
        except Timeout as error:
            raise _in_use_error(path) from error
        except OSError as error:
            raise _not_writable_error(path, error) from error
        yield


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()


def _in_use_error(path: Path) -> UserError:
    holder = ""
    with contextlib.suppress(OSError):
        holder = " ".join((path / RUN_LOCK).read_text("utf-8", errors="replace").split())
    return UserError(
        f"run directory {path}: in use by {holder or 'another process'}; wait for it, or use "
        "another --run-dir"
    )


def _not_writable_error(path: Path, error: OSError) -> GapftError:
    """Build a ``GapftError`` for a full disk, a ``UserError`` for any other reason."""
    if is_disk_full(error):
        return not_writable_error(path, error)
    return UserError(f"run directory {path}: cannot be written: {error.strerror}")
