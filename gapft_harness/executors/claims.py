"""One process a job: a claim on the run directory that ends with the process that holds it.

A worker may outlive its driver, on another machine and for a while. The driver that comes back must
not start the same job beside it, or two processes would write one journal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.streams import derive
from gapft_harness.run_directory.lock import JOBS_LOCK

#: Seconds that a job waits for another process to end that is still at it.
PATIENCE_S = 60.0

_LOOK_S = 0.1


@contextlib.contextmanager
def claimed(
    function: str, arguments: Mapping[str, Any], patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """Holds a job of a run while the block runs; waits for a process that holds it.

    The claim is a lock on one byte of ``run_path/jobs.lock``, which byte being derived from the
    job. Locks of this kind (POSIX) hold across machines where the file system does locking (NFS).

    Args:
        function: the job's.
        arguments: the job's; without a ``run_path`` there is nothing to claim.
        patience_s: seconds to wait.

    Raises:
        UserError: the run directory is not to be seen from here.
        GapftError: it cannot be locked, or another process still holds the job.
    """
    if "run_path" not in arguments:
        yield
        return
    run = Path(arguments["run_path"])
    if not run.is_dir():
        raise UserError(
            f"run directory {run}: is not there on {platform.node()}; it must be visible under the "
            "same path to all workers"
        )
    try:
        descriptor = os.open(run / JOBS_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise GapftError(f"run directory {run}: cannot be written: {error.strerror}") from error
    try:
        for place in _places(function, arguments):
            _lock(descriptor, place, run, patience_s)
        yield
    finally:
        os.close(descriptor)


def _places(function: str, arguments: Mapping[str, Any]) -> list[int]:
    """A job's bytes: by what it does in its run, not by where plugins or the run lie.

    A job of several arms has a byte for each, since the next driver may group them otherwise. They
    are ascending, so that two such jobs cannot wait for each other.
    """
    parts = [
        f"{key}={arguments[key]}"
        for key in sorted(arguments)
        if key != "run_path" and isinstance(arguments[key], str | int | float)
    ]
    arms = arguments.get("arms", [()])
    return sorted(derive(function, *parts, *arm) >> 2 for arm in arms)


def _lock(descriptor: int, place: int, run: Path, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            return
        except (BlockingIOError, PermissionError) as error:  # POSIX allows EAGAIN and EACCES
            if time.monotonic() > deadline:
                raise GapftError(
                    f"run directory {run}: a worker of an earlier command is still at this job; "
                    "end that process, or wait for it, and give the command again"
                ) from error
        except OSError as error:
            raise GapftError(
                f"run directory {run}: cannot be locked ({error.strerror}); use a file system "
                "that supports locks"
            ) from error
        time.sleep(_LOOK_S)
