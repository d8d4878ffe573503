"""The inside of a pool's worker: reads batches, reports each item as it is done.

In: a list of items. Out: ``["ready"]`` once, then a report an item, ``["done", value]`` or
``["raised", reason]``; ``["failed", reason]`` if the function is not found.
"""

from __future__ import annotations

import json
import resource
from typing import Any

from gapft_harness.core.errors import describe
from gapft_harness.core.processes import Parent, resolve

#: CPU seconds an item may use beyond ten times its limit. The parent kills long before; this ends
#: a busy worker whose parent was killed itself.
ORPHAN_SECONDS = 60


def serve(
    parent: Parent,
    function: str,
    setup: str | None,
    setup_arguments: list[Any],
    timeout_s: float,
    memory_bytes: int | None,
) -> None:
    """Answers batches until the parent closes the pipe."""

    def report(*fields: Any) -> None:
        parent.tell(json.dumps(fields).encode())

    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        call = resolve(function)
        if setup is not None:
            resolve(setup)(*setup_arguments)
    except BaseException as error:
        report("failed", describe(error))
        return
    report("ready")
    for batch in parent.messages():
        for item in json.loads(batch):
            _limit_cpu(timeout_s)
            try:
                done = json.dumps(["done", call(item)])
            except BaseException as error:
                # BaseException: a library's own time-out class may derive from it, and an item
                # that exits (SystemExit) is an outcome of that item, not the end of the worker.
                report("raised", describe(error))
            else:
                parent.tell(done.encode())


def _limit_cpu(timeout_s: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + 10 * timeout_s) + ORPHAN_SECONDS
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or soft <= hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
