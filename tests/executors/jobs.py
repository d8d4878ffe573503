"""Jobs of the test functions, and waiting for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gapft_harness.hooks.protocols import Job
from tests.kit.patience import PATIENCE_S


def build_job(function: str, label: str = "", **arguments: Any) -> Job:
    """Build a job of a function of ``job_functions``; its label is the name by default."""
    return Job(label or function, f"tests.executors.job_functions:{function}", arguments)


def ignore_report(*report: Any) -> None:
    """Ignore a report of progress."""


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def list_pids(folder: Path) -> list[int]:
    """Return the processes that wrote a file ``pid-NUMBER`` into a folder."""
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]
