"""The inside of a worker process: reads batches, reports each item as it is done.

Lines of JSON both ways. In: a list of items. Out: ``["ready"]`` once, then one line an item,
``["done", value]`` or ``["raised", reason]``; ``["failed", reason]`` if the function is not found.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

from gapft_harness.core.errors import describe

#: CPU seconds an item may use beyond ten times its limit. The parent kills long before; this ends
#: a busy worker whose parent was killed itself.
ORPHAN_SECONDS = 60


def serve(function: str, setup: str | None, timeout_s: float, memory_bytes: int | None) -> None:
    """Answers batches from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not reach the reports

    def report(*fields: Any) -> None:
        reports.write(json.dumps(fields) + "\n")
        reports.flush()

    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        call = resolve(function)
        if setup is not None:
            resolve(setup)()
    except BaseException as error:
        report("failed", describe(error))
        return
    report("ready")
    for line in sys.stdin:
        for item in json.loads(line):
            _limit_cpu(timeout_s)
            try:
                value = call(item)
                json.dumps(value)
            except BaseException as error:
                # BaseException: a library's own time-out class may derive from it, and an item
                # that exits (SystemExit) is an outcome of that item, not the end of the worker.
                report("raised", describe(error))
            else:
                report("done", value)


def resolve(function: str) -> Callable[..., Any]:
    """The function that ``module:name`` names."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def _limit_cpu(timeout_s: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + 10 * timeout_s) + ORPHAN_SECONDS
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or soft <= hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
