"""A clock for clients that wait before a retry: their waits take no time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

_monotonic, _sleep = time.monotonic, time.sleep


class VirtualClock:
    """Time that also passes when all requests that can be under way wait.

    Attributes:
        requests: the number of these requests.
    """

    def __init__(self) -> None:
        self.requests = 1
        self._skipped = 0.0
        self._ends: list[float] = []
        self._lock = threading.RLock()

    def read(self) -> float:
        """Return the time in seconds, as ``time.monotonic`` does."""
        return _monotonic() + self._skipped

    def wait_for_request(self, seconds: float) -> None:
        """Return when a request waits, or after some seconds of real time."""
        end = _monotonic() + seconds
        while not self._ends and _monotonic() < end:
            _sleep(0.002)

    def sleep(self, seconds: float) -> None:
        """Wait, as ``time.sleep`` does."""
        end = self.read() + seconds
        self._ends.append(end)
        while not self._is_reached(end):
            _sleep(0.002)
        self._ends.remove(end)

    def _is_reached(self, end: float) -> bool:
        """Return whether a wait has ended; skip to its end if all requests wait longer."""
        with self._lock:
            if len(self._ends) >= self.requests and end == min(self._ends):
                self._skipped += max(0.0, end - self.read())
            return self.read() >= end


@contextmanager
def use_virtual_clock() -> Iterator[VirtualClock]:
    """Replace the clock of this process."""
    clock = VirtualClock()
    with (
        mock.patch.object(time, "monotonic", clock.read),
        mock.patch.object(time, "sleep", clock.sleep),
    ):
        yield clock
