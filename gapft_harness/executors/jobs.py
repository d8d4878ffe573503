"""The work of a job: call its function, send the outcome to the driver.

An outcome is JSON text: ``["result", value]``, or ``["error", class name or "", message,
traceback]``.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import ERRORS, GapftError
from gapft_harness.core.extras import missing_package_error
from gapft_harness.core.processes import import_function
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress

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
    text = str(error) if kind else "".join(traceback.format_exception_only(error)).strip()
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
