"""Kill a running command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection

import psutil

from tests.kit.patience import PATIENCE_S


def find_workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return a command's descendant processes; none if it has ended."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_command(process: subprocess.Popen[bytes]) -> bool:
    """Send SIGKILL to a command's process group and wait until its workers are gone.

    The command is stopped first: finding its workers takes long on a busy machine.

    Args:
        process: the command, started in its own session.

    Returns:
        False if the command had already ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    workers = find_workers(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == [], "workers end with their driver"
    return status == -signal.SIGKILL


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
