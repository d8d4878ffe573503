"""Wait for the end of processes."""

from __future__ import annotations

import time
from collections.abc import Collection

import psutil

from tests.kit.patience import PATIENCE_S


def wait_for_end(pids: Collection[int]) -> None:
    """Wait until none of some processes runs."""
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "a process goes on"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
