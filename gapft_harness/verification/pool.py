"""Worker processes that can be killed, for work that may hang or exhaust memory.

A signal-based time-out is unreliable: libraries catch the exception it raises, and a long C call
never receives it. Here the work runs in separate processes; the parent measures the time of each
item, and kills and replaces a worker that does not report in time. Workers persist between calls,
so each worker imports its modules once.
"""

from __future__ import annotations

import collections
import os
import selectors
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gapft_harness.core.errors import GapftError
from gapft_harness.core.processes import Closing, WorkerProcess, build_thread_environment, end_all

#: Maximum items sent to a worker at once: large enough to hide the round trip, small enough that
#: the items after one that hangs soon move to other workers.
BATCH = 16

_SERVE = "gapft_harness.verification.pool_child:serve"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one item.

    Attributes:
        status: ``done`` (the function returned ``value``), ``raised`` (it raised; ``reason`` is the
            exception in one line), ``timeout`` (no result within the limit, so its worker was
            killed) or ``died`` (its worker died, and so did a second worker with this item alone).
        value: the function's JSON value; None unless done.
        reason: empty when done.
    """

    status: Literal["done", "timeout", "died", "raised"]
    value: Any = None
    reason: str = ""


@dataclass(slots=True, eq=False)
class _ItemWorker(WorkerProcess):
    """One worker of a pool.

    Attributes:
        clock: the time of its start or last report, at which the current item began (monotonic
            seconds).
        ready: whether it has imported its function.
        batch: indices of the items that were sent and not yet reported.
    """

    clock: float = field(default_factory=time.monotonic)
    ready: bool = False
    batch: collections.deque[int] = field(default_factory=collections.deque)


class WorkerPool(Closing):
    """Apply a function to items in worker processes that can be killed.

    Use it as a context manager, or call ``close``; remaining workers end with the interpreter.
    ``map`` may be called from several threads, but the calls run one at a time.

    Args:
        function: ``module:name`` of a function from one JSON value to a JSON value.
        workers: maximum number of worker processes; they start when first needed.
        timeout_s: seconds of wall time for one item, without the start of a worker.
        memory_bytes: address space of one worker (``RLIMIT_AS``); None for no limit.
        setup: ``module:name`` of a function that a worker calls once before its first item,
            outside the limit of an item.
        start_timeout_s: seconds for a worker to import the function and call ``setup``.
        setup_arguments: JSON values, the arguments of ``setup``.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        function: str,
        workers: int = 2,
        timeout_s: float = 5.0,
        memory_bytes: int | None = None,
        setup: str | None = None,
        start_timeout_s: float = 120.0,
        setup_arguments: Sequence[Any] = (),
    ) -> None:
        if workers < 1 or timeout_s <= 0 or start_timeout_s <= 0:
            raise ValueError("workers, timeout_s and start_timeout_s must be positive")
        for name in filter(None, (function, setup)):
            if name.count(":") != 1:
                raise ValueError(f"expected module:name, found {name!r}")
        self._function = function
        self._count = workers
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._arguments = [function, setup, list(setup_arguments), timeout_s, memory_bytes]
        self._workers: list[_ItemWorker] = []
        self._lock = threading.Lock()
        self._closed = False
        self._finalizer = weakref.finalize(self, end_all, self._workers, os.getpid())

    def map(self, items: Sequence[Any]) -> list[Outcome]:
        """Apply the function to every item; the outcomes are in the items' order.

        An item's outcome does not depend on the other items: if an item hangs or kills its worker,
        a different worker handles the rest of the batch.

        Raises:
            GapftError: a worker cannot start (the function is not found, or its import fails).
            ValueError: the pool is closed.
        """
        with self._lock:
            if self._closed:
                raise ValueError("this worker pool is closed")
            try:
                return _Call(self, items).run() if items else []
            except BaseException:
                end_all(self._workers, os.getpid())  # late reports must not reach the next call
                raise

    def close(self) -> None:
        """Kill the workers. A second call has no effect."""
        with self._lock:
            self._closed = True
            self._finalizer()


class _Call:
    """The state of one ``map`` call."""

    def __init__(self, pool: WorkerPool, items: Sequence[Any]) -> None:
        self.pool = pool
        self.workers = pool._workers
        self.items = items
        self.outcomes: dict[int, Outcome] = {}
        self.queue = collections.deque(range(len(items)))
        self.suspects: collections.deque[int] = collections.deque()
        """Items whose worker died once; each runs again alone."""
        self.deaths: set[int] = set()

    def run(self) -> list[Outcome]:
        while len(self.outcomes) < len(self.items):
            self._start_missing()
            self._send_batches()
            with selectors.DefaultSelector() as selector:
                for worker in self.workers:
                    selector.register(worker.reports, selectors.EVENT_READ, worker)
                events = selector.select(self._compute_wait())
            reporting = [key.data for key, _ in events]
            for worker in reporting:
                self._read_reports(worker)
            self._kill_late(reporting)
        return [self.outcomes[i] for i in range(len(self.items))]

    def _start_missing(self) -> None:
        busy = sum(bool(worker.batch) for worker in self.workers)
        target = min(self.pool._count, busy + len(self.queue) + len(self.suspects))
        while len(self.workers) < target:
            # A fixed hash seed makes the order of sets, and so sympy's results, reproducible.
            environment = {**build_thread_environment(1), "PYTHONHASHSEED": "0"}
            self.workers.append(_ItemWorker.start(_SERVE, self.pool._arguments, environment))

    def _send_batches(self) -> None:
        share = max(1, min(BATCH, len(self.queue) // (2 * self.pool._count)))
        for worker in self.workers:
            if worker.batch or not worker.ready:
                continue
            if self.suspects:
                worker.batch.append(self.suspects.popleft())
            elif self.queue:
                size = min(share, len(self.queue))
                worker.batch.extend(self.queue.popleft() for _ in range(size))
            else:
                continue
            worker.clock = time.monotonic()
            worker.send([self.items[i] for i in worker.batch])

    def _compute_deadline(self, worker: _ItemWorker) -> float:
        limit = self.pool._timeout_s if worker.ready else self.pool._start_timeout_s
        return worker.clock + limit if worker.batch or not worker.ready else float("inf")

    def _compute_wait(self) -> float | None:
        first = min(self._compute_deadline(worker) for worker in self.workers)
        return None if first == float("inf") else max(0.0, first - time.monotonic())

    def _read_reports(self, worker: _ItemWorker) -> None:
        reports = worker.receive()
        if reports is None:
            self._handle_death(worker)
            return
        if reports:
            worker.clock = time.monotonic()
        for kind, *fields in reports:
            if kind == "ready":
                worker.ready = True
            elif kind == "failed":
                raise GapftError(f"a worker for {self.pool._function} cannot start: {fields[0]}")
            else:
                done = kind == "done"
                self.outcomes[worker.batch.popleft()] = Outcome(
                    kind, fields[0] if done else None, "" if done else fields[0]
                )

    def _handle_death(self, worker: _ItemWorker) -> None:
        cause = self._remove_worker(worker)
        if not worker.ready:
            raise GapftError(f"a worker for {self.pool._function} died while starting ({cause})")
        if not worker.batch:
            return
        culprit = worker.batch.popleft()
        self.queue.extendleft(reversed(worker.batch))
        if culprit in self.deaths:
            self.outcomes[culprit] = Outcome("died", reason=f"its worker died twice ({cause})")
        else:
            self.deaths.add(culprit)
            self.suspects.append(culprit)

    def _kill_late(self, reporting: Sequence[_ItemWorker]) -> None:
        current_time = time.monotonic()
        for worker in [
            w
            for w in self.workers
            if w not in reporting and self._compute_deadline(w) <= current_time
        ]:
            cause = self._remove_worker(worker)
            if not worker.ready:
                raise GapftError(
                    f"a worker for {self.pool._function} was not ready within "
                    f"{self.pool._start_timeout_s:g} s ({cause})"
                )
            late = worker.batch.popleft()
            self.outcomes[late] = Outcome(
                "timeout", reason=f"no result within {self.pool._timeout_s:g} s"
            )
            self.queue.extendleft(reversed(worker.batch))

    def _remove_worker(self, worker: _ItemWorker) -> str:
        self.workers[:] = [other for other in self.workers if other is not worker]
        worker.kill()
        cause = worker.describe_death()
        last = worker.read_tail().rpartition("\n")[2]
        worker.end()
        return f"{cause}: {last[:300]}" if last else cause
