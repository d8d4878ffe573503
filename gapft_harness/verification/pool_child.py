"""The code of a pool's worker: read batches, and report each item when it is done.

Messages are JSON. Input: a list of items per message. Output: ``["ready"]`` once, then one report
per item, ``["done", value]`` or ``["raised", reason]``, also for a value that is not JSON; or
``["failed", reason]`` if the function cannot be imported or its setup raises.
"""

from __future__ import annotations

import json
import resource
from typing import Any

from gapft_harness.core.errors import describe_error
from gapft_harness.core.processes import Parent, import_function

#: CPU seconds an item may use beyond ten times its limit. The parent kills much earlier; this limit
#: ends a busy worker whose parent was killed.
ORPHAN_SECONDS = 60


def serve(
    parent: Parent,
    function: str,
    setup: str | None,
    setup_arguments: list[Any],
    timeout_s: float,
    memory_bytes: int | None,
) -> None:
    """Process batches until the parent closes the pipe; see ``WorkerPool`` for the arguments."""

    def report(*fields: Any) -> None:
        parent.send(json.dumps(fields).encode())

    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        call = import_function(function)
        if setup is not None:
            import_function(setup)(*setup_arguments)
    except BaseException as error:
        report("failed", describe_error(error))
        return
    report("ready")
    for batch in parent.read_messages():
        for item in json.loads(batch):
            _limit_cpu(timeout_s)
            try:
                reply = json.dumps(["done", call(item)])
            except BaseException as error:
                # BaseException, because a library's time-out class may derive from it, and an item
                # that raises SystemExit must not end the worker.
                report("raised", describe_error(error))
            else:
                parent.send(reply.encode())


def _limit_cpu(timeout_s: float) -> None:
    """Allow the next item ten times its limit in CPU seconds, and ``ORPHAN_SECONDS``."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + 10 * timeout_s) + ORPHAN_SECONDS
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
