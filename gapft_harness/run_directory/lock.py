"""The lock of a run directory: one writing process at a time."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import is_disk_full, not_writable_error
from gapft_harness.core.locks import hold_lock

#: The lock file in a run directory. While a command runs, it names the command's process.
RUN_LOCK = "run.lock"


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
    import fcntl  # noqa: F401  # a system without it cannot run jobs either

    lock = path / RUN_LOCK
    with contextlib.ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not stack.enter_context(hold_lock(lock, wait=False)):
                raise _in_use_error(path, lock)
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            lock.write_text(f"process {os.getpid()} on {platform.node()} since {since}\n", "utf-8")
            # The folder may have become read-only after a killed command made the lock file.
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise _not_writable_error(path, error) from error
        yield


def _in_use_error(path: Path, lock: Path) -> UserError:
    holder = lock.read_text("utf-8", errors="replace").strip() or "another process"
    return UserError(
        f"run directory {path}: in use by {holder}; wait for it, or use another --run-dir"
    )


def _not_writable_error(path: Path, error: OSError) -> GapftError:
    """Build a ``GapftError`` for a full disk, a ``UserError`` for any other reason."""
    if is_disk_full(error):
        return not_writable_error(path, error)
    return UserError(f"run directory {path}: cannot be written: {error.strerror}")
