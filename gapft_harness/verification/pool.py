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
from typing import Annotated, Any, Literal

from pydantic import Field

from gapft_harness.core.errors import GapftError
from gapft_harness.core.processes import Closing, WorkerProcess, build_thread_environment, end_all

#: Numbers that users may set for a pool.
Seconds = Annotated[float, Field(strict=True, gt=0)]
Count = Annotated[int, Field(strict=True, gt=0)]

#: Seconds for a worker to import the function and call ``setup``.
_START_TIMEOUT_S = 120.0

_SERVE = "gapft_harness.verification.pool_child:serve"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one item.

    Attributes:
        status: ``done`` (the function returned ``value``), ``raised`` (it raised; ``reason`` is the
            exception in one line), ``timeout`` (no result within the limit, so its worker was
            killed) or ``died`` (its worker died, and so did a second worker with this item).
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
        clock: the time of its start, then of its current item's (monotonic seconds).
        ready: whether it has imported its function.
        item: index of the item that was sent and not yet reported; None without one.
    """

    clock: float = field(default_factory=time.monotonic)
    ready: bool = False
    item: int | None = None


class WorkerPool(Closing):
    """Apply a function to items in worker processes that can be killed.

    Use it as a context manager, or call ``close``; remaining workers end with the interpreter.
    ``map`` may be called from several threads, but the calls run one at a time.

    Args:
        function: ``module:name`` of a function from one JSON value to a JSON value.
        workers: maximum number of worker processes; None: one per core, at most 8. They start when
            first needed.
        timeout_s: seconds of wall time for one item, without the start of a worker.
        memory_bytes: address space of one worker (``RLIMIT_AS``); None for no limit.
        setup: ``module:name`` of a function that a worker calls once before its first item,
            outside the limit of an item.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        function: str,
        workers: int | None = None,
        timeout_s: float = 5.0,
        memory_bytes: int | None = None,
        setup: str | None = None,
    ) -> None:
        workers = min(8, os.cpu_count() or 1) if workers is None else workers
        if workers < 1 or timeout_s <= 0:
            raise ValueError("workers and timeout_s must be positive")
        for name in filter(None, (function, setup)):
            if name.count(":") != 1:
                raise ValueError(f"expected module:name, found {name!r}")
        self._function = function
        self._count = workers
        self._timeout_s = timeout_s
        self._arguments = [function, setup, timeout_s, memory_bytes]
        self._workers: list[_ItemWorker] = []
        self._lock = threading.Lock()
        self._closed = False
        self._finalizer = weakref.finalize(self, end_all, self._workers, os.getpid())

    def map(self, items: Sequence[Any]) -> list[Outcome]:
        """Apply the function to every item; the outcomes are in the items' order.

        A worker has one item at a time, so an item that hangs or kills its worker affects no other.

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
        self.deaths: set[int] = set()
        """Items whose worker died once; each runs again."""

    def run(self) -> list[Outcome]:
        while len(self.outcomes) < len(self.items):
            self._start_missing()
            self._send_items()
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
        busy = sum(worker.item is not None for worker in self.workers)
        target = min(self.pool._count, busy + len(self.queue))
        while len(self.workers) < target:
            # A fixed hash seed makes the order of sets, and so sympy's results, reproducible.
            environment = {**build_thread_environment(1), "PYTHONHASHSEED": "0"}
            self.workers.append(_ItemWorker.start(_SERVE, self.pool._arguments, environment))

    def _send_items(self) -> None:
        for worker in self.workers:
            if self.queue and worker.ready and worker.item is None:
                worker.item = self.queue.popleft()
                worker.clock = time.monotonic()
                worker.send(self.items[worker.item])

    def _compute_deadline(self, worker: _ItemWorker) -> float:
        if not worker.ready:
            return worker.clock + _START_TIMEOUT_S
        return float("inf") if worker.item is None else worker.clock + self.pool._timeout_s

    def _compute_wait(self) -> float | None:
        first = min(self._compute_deadline(worker) for worker in self.workers)
        return None if first == float("inf") else max(0.0, first - time.monotonic())

    def _read_reports(self, worker: _ItemWorker) -> None:
        reports = worker.receive()
        if reports is None:
            self._handle_death(worker)
            return
        for kind, *fields in reports:
            if kind == "ready":
                worker.ready = True
            elif kind == "failed":
                raise GapftError(f"a worker for {self.pool._function} cannot start: {fields[0]}")
            else:
                assert worker.item is not None
                done = kind == "done"
                self.outcomes[worker.item] = Outcome(
                    kind, fields[0] if done else None, "" if done else fields[0]
                )
                worker.item = None

    def _handle_death(self, worker: _ItemWorker) -> None:
        cause = self._remove_worker(worker)
        if not worker.ready:
            raise GapftError(f"a worker for {self.pool._function} died while starting ({cause})")
        if worker.item is None:
            return
        if worker.item in self.deaths:
            self.outcomes[worker.item] = Outcome("died", reason=f"its worker died twice ({cause})")
        else:
            self.deaths.add(worker.item)
            self.queue.append(worker.item)

    def _kill_late(self, reporting: Sequence[_ItemWorker]) -> None:
        current_time = time.monotonic()
        for worker in [
            w
            for w in self.workers
            if w not in reporting and self._compute_deadline(w) <= current_time
        ]:
            cause = self._remove_worker(worker)
            if worker.item is None:
                raise GapftError(
                    f"a worker for {self.pool._function} was not ready within "
                    f"{_START_TIMEOUT_S:g} s ({cause})"
                )
            self.outcomes[worker.item] = Outcome(
                "timeout", reason=f"no result within {self.pool._timeout_s:g} s"
            )

    def _remove_worker(self, worker: _ItemWorker) -> str:
        self.workers[:] = [other for other in self.workers if other is not worker]
        worker.kill()
        cause = worker.describe_death()
        last = worker.read_tail().rpartition("\n")[2]
        worker.end()
        return f"{cause}: {last[:300]}" if last else cause
