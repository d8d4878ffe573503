"""The steps of a job: claim it, call its function, send the outcome to the driver.

A worker on another machine may run for some time after its driver ended. When the user gives the
command again, the new driver must not start the same job beside that worker, or two processes would
write one table. So a process claims its job by a lock in the run directory; the lock ends with the
process.

An outcome is JSON text: ``["result", value]``, or ``["error", class name or "", message,
traceback]``.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import ERRORS, GapftError, UserError
from gapft_harness.core.extras import missing_package_error
from gapft_harness.core.files import PARTIAL
from gapft_harness.core.locks import has_no_locks, hold_soft_lock
from gapft_harness.core.processes import import_function
from gapft_harness.core.streams import derive_key
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress
from gapft_harness.run_directory.lock import JOBS_LOCK

#: Seconds that a job waits for another process that still runs the same job.
CLAIM_TIMEOUT_S = 60.0

_POLL_INTERVAL_S = 0.1


@contextlib.contextmanager
def claim_job(
    function: str, arguments: Mapping[str, Any], timeout_s: float = CLAIM_TIMEOUT_S
) -> Iterator[None]:
    """Claim a job of a run for the length of the block; wait while another process holds it.

    The claim is a lock on bytes of ``run_path/jobs.lock`` whose offsets are derived from the job.
    These POSIX locks also work across machines if the file system supports locks (NFS).

    Args:
        function: the job's function, ``module:name``.
        arguments: the job's arguments; without a ``run_path`` there is nothing to claim.
        timeout_s: seconds to wait for the other process.

    Raises:
        UserError: the run directory does not exist on this machine.
        GapftError: it cannot be locked, or another process still holds the job.
    """
    if "run_path" not in arguments:
        yield
        return
    run = Path(arguments["run_path"])
    if not run.is_dir():
        raise UserError(
            f"run directory {run}: not found on {platform.node()}; all workers must see it under "
            "the same path"
        )
    try:
        descriptor = os.open(run / JOBS_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise GapftError(f"run directory {run}: not writable: {error.strerror}") from error
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        for offset in _derive_lock_offsets(function, arguments):
            _lock_byte(descriptor, offset, run, timeout_s, stack)
        yield


def _derive_lock_offsets(function: str, arguments: Mapping[str, Any]) -> list[int]:
    """Derive the offsets of a job's lock bytes from its function and arguments.

    The paths of the run and of plugins do not count. A job of several arms has one byte for each
    arm, since the next driver may group the arms differently. Offsets are ascending, so that two
    jobs cannot wait for each other.
    """
    parts = [
        f"{key}={arguments[key]}"
        for key in sorted(arguments)
        if key != "run_path" and isinstance(arguments[key], str | int | float)
    ]
    if share := arguments.get("share"):  # of a search that is divided among jobs
        parts.append(f"share={[*share]}")
    arms = arguments.get("arms", [()])
    return sorted(derive_key(function, *parts, *arm) >> 2 for arm in arms)


def _lock_byte(
    descriptor: int, offset: int, run: Path, timeout_s: float, stack: contextlib.ExitStack
) -> None:
    import fcntl  # not on Windows

    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
            return
        except (BlockingIOError, PermissionError) as error:  # POSIX allows EAGAIN and EACCES
            if time.monotonic() > deadline:
                raise _held_error(run) from error
        except OSError as error:
            if not has_no_locks(error):
                raise GapftError(
                    f"run directory {run}: cannot be locked: {error.strerror}"
                ) from error
            soft = run / f".{JOBS_LOCK}.{offset}{PARTIAL}"
            if not stack.enter_context(hold_soft_lock(soft, timeout_s)):
                raise _held_error(run) from error
            return
        time.sleep(_POLL_INTERVAL_S)


def _held_error(run: Path) -> GapftError:
    return GapftError(
        f"run directory {run}: a worker of an earlier command still runs this job; "
        "end that process or wait for it, then run the command again"
    )


#: Number of lines of a traceback that an error shows.
_TRACE_LINES = 12

RESUME_HINT = "Finished work is kept: run the same command again to resume."


def run_job(function: str, arguments: Mapping[str, Any], progress: ReportProgress) -> str:
    """Call ``function(progress=..., **arguments)``, which must return a dict of JSON values.

    Returns:
        The outcome as JSON text. Any exception, ``SystemExit`` included, becomes an outcome too.
    """
    try:
        if files := arguments.get("plugin_files"):
            load_plugins(files)  # the function may be defined in one of them
        job_function = import_function(function)
        with claim_job(function, arguments):
            value = job_function(progress=progress, **arguments)
        if not isinstance(value, dict):
            raise TypeError(f"{function} returned {type(value).__name__}, expected a dict")
        return json.dumps(["result", value])
    except BaseException as error:
        # BaseException: a job that calls sys.exit has failed, and the driver must know.
        return encode_error(error)


def encode_error(error: BaseException) -> str:
    """Return the outcome of a job that raised an exception, as JSON text."""
    if isinstance(error, ModuleNotFoundError):
        error = missing_package_error(error) or error
    kind = next(
        (error_class.__name__ for error_class in ERRORS if isinstance(error, error_class)), ""
    )
    text = str(error) if kind else _format_exception(error)
    return json.dumps(["error", kind, text, "".join(traceback.format_exception(error))])


def job_error(label: str, kind: str, text: str, trace: str, output: str = "") -> GapftError:
    """Build the exception that the driver raises for a failed job.

    Args:
        label: the job's name, for the message.
        kind: name of the exception's class if it is one of ``ERRORS``; its message then needs no
            traceback.
        text: the exception's message.
        trace: its traceback.
        output: the last lines that the job printed, if they are known.
    """
    for error_class in ERRORS:
        if error_class.__name__ == kind:
            return error_class(text)
    lines = trace.rstrip().splitlines()[-_TRACE_LINES:]
    return GapftError(f"{label}: {text}\n" + "\n".join(["End of the traceback:", *lines]) + output)


def _format_exception(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
