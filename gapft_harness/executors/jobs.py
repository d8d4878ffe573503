"""What every executor does with a job: call its function, and carry the outcome to the driver.

An outcome is JSON text: ``["result", value]``, or ``["error", class name or "", message,
traceback]``.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from gapft_harness.core.errors import ERRORS, GapftError
from gapft_harness.core.processes.inside import resolve
from gapft_harness.executors.claims import claimed
from gapft_harness.hooks.manager import load_plugins

#: Lines of a traceback that an error shows.
_TRACE_LINES = 12

GO_ON = "What is finished is kept: the same command goes on from there."


def outcome(
    function: str, arguments: Mapping[str, Any], progress: Callable[[int, int], None]
) -> str:
    """Calls ``function(progress=..., **arguments)``, which must return a dict of JSON values.

    Args:
        function: ``module:name``.
        arguments: the job's.
        progress: called with (done, total).

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
    kind = next((known.__name__ for known in ERRORS if isinstance(error, known)), "")
    text = str(error) if kind else _one_line(error)
    return json.dumps(["error", kind, text, "".join(traceback.format_exception(error))])


def failure(label: str, kind: str, text: str, trace: str, output: str = "") -> GapftError:
    """A job's error as the driver raises it.

    Args:
        label: the job's.
        kind: name of the class, if it is one of ``ERRORS``: then the message stands by itself.
        text: the message.
        trace: the traceback.
        output: the last that the job printed, if that is known.
    """
    for known in ERRORS:
        if known.__name__ == kind:
            return known(text)
    lines = trace.rstrip().splitlines()[-_TRACE_LINES:]
    return GapftError(f"{label}: {text}\n" + "\n".join(["Traceback, its end:", *lines]) + output)


def _one_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
