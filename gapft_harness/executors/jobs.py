"""What an executor does with a job: claim it, call its function, carry the outcome to the driver.

A worker may outlive its driver, on another machine and for a while. The driver that comes back must
not start the same job beside it, or two processes would write one table. So a process claims its
job on the run directory, and the claim ends with the process.

An outcome is JSON text: ``["result", value]``, or ``["error", class name or "", message,
traceback]``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import ERRORS, GapftError, UserError
from gapft_harness.core.extras import lacking
from gapft_harness.core.files import PARTIAL
from gapft_harness.core.locks import has_no_locks, hold_soft_lock
from gapft_harness.core.processes import resolve
from gapft_harness.core.streams import derive
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress
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
        arguments: the job's; without a ``run_path`` there is nothing to claim.

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
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        for place in _places(function, arguments):
            _lock(descriptor, place, run, patience_s, stack)
        yield


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
    if share := arguments.get("share"):  # of a search whose chunks several jobs have
        parts.append(f"share={[*share]}")
    arms = arguments.get("arms", [()])
    return sorted(derive(function, *parts, *arm) >> 2 for arm in arms)


def _lock(
    descriptor: int, place: int, run: Path, patience_s: float, stack: contextlib.ExitStack
) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            return
        except (BlockingIOError, PermissionError) as error:  # POSIX allows EAGAIN and EACCES
            if time.monotonic() > deadline:
                raise _held_error(run) from error
        except OSError as error:
            if not has_no_locks(error):
                raise GapftError(
                    f"run directory {run}: cannot be locked: {error.strerror}"
                ) from error
            soft = run / f".{JOBS_LOCK}.{place}{PARTIAL}"
            if not stack.enter_context(hold_soft_lock(soft, patience_s)):
                raise _held_error(run) from error
            return
        time.sleep(_LOOK_S)


def _held_error(run: Path) -> GapftError:
    return GapftError(
        f"run directory {run}: a worker of an earlier command is still at this job; end that "
        "process, or wait for it, and give the command again"
    )


#: Lines of a traceback that an error shows.
_TRACE_LINES = 12

GO_ON = "What is finished is kept: the same command goes on from there."


def outcome(function: str, arguments: Mapping[str, Any], progress: ReportProgress) -> str:
    """Calls ``function(progress=..., **arguments)``, which must return a dict of JSON values.

    Returns:
        The outcome. Whatever is raised is an outcome too, ``SystemExit`` included.
    """
    try:
        if files := arguments.get("plugin_files"):
            load_plugins(files)  # the function may stand in one of them
        called = resolve(function)
        with claimed(function, arguments):
            value = called(progress=progress, **arguments)
        if not isinstance(value, dict):
            raise TypeError(f"{function} returned {type(value).__name__}, expected a dict")
        return json.dumps(["result", value])
    except BaseException as error:
        # BaseException: a job that calls sys.exit has failed, and the driver must hear of it.
        return failure_text(error)


def failure_text(error: BaseException) -> str:
    """The outcome of a job that ended with an error."""
    if isinstance(error, ModuleNotFoundError):
        error = lacking(error) or error
    kind = next((known.__name__ for known in ERRORS if isinstance(error, known)), "")
    text = str(error) if kind else _one_line(error)
    return json.dumps(["error", kind, text, "".join(traceback.format_exception(error))])


def failure(label: str, kind: str, text: str, trace: str, output: str = "") -> GapftError:
    """A job's error as the driver raises it.

    Args:
        kind: name of the class, if it is one of ``ERRORS``: then the message stands by itself.
        output: the last that the job printed, if that is known.
    """
    for known in ERRORS:
        if known.__name__ == kind:
            return known(text)
    lines = trace.rstrip().splitlines()[-_TRACE_LINES:]
    return GapftError(f"{label}: {text}\n" + "\n".join(["Traceback, its end:", *lines]) + output)


def _one_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
