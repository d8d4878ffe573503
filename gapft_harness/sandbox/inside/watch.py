"""Watch a test's process until it ends, or stop it at its limits."""

from __future__ import annotations

import os
import resource
import select
import signal
import time

from gapft_harness.sandbox.records import WALL_PER_CPU_SECOND

#: Seconds between two counts of a process's threads.
_COUNT_INTERVAL_S = 0.02
_CORES = os.cpu_count() or 1


def watch_process(
    process: int, cpu_s: float, wall_s: float, control: int, max_threads: int | None
) -> tuple[int, float, float, str]:
    """Wait until a process ends, or stop it at a limit.

    CPU time decides on time-outs, since it does not depend on the load of the machine. The wall
    limit ends a process that waits.

    Args:
        process: the id of the process, a child of this one.
        cpu_s: CPU limit in seconds, for all its threads together.
        wall_s: wall limit in seconds, of a process that uses no CPU time.
        control: descriptor of the socket to the harness; any event on it ends this process too.
        max_threads: the largest number of threads if the kernel does not limit it; else None.

    Returns:
        The exit status or minus a signal, CPU seconds, wall seconds, and the limit that it
        exceeded (``cpu``, ``wall`` or empty).
    """
    start_time = time.monotonic()
    end = os.pidfd_open(process)
    poll = select.poll()
    poll.register(end, select.POLLIN)
    poll.register(control, select.POLLIN)
    clock = ~process << 3 | 2  # the CPU clock of all its threads
    used_s = 0.0
    left_s = wall_s
    has_ended = False
    while not has_ended and used_s < cpu_s and left_s > 0:
        # All cores together reach the CPU limit no earlier than this.
        next_look_s = min((cpu_s - used_s) / _CORES, left_s)
        if max_threads is not None:
            next_look_s = min(next_look_s, _COUNT_INTERVAL_S)
        events = dict(poll.poll(max(2.0, 1000 * next_look_s)))
        if control in events:  # the harness ended or closed the socket
            os.kill(process, signal.SIGKILL)
            os._exit(1)
        used_s = time.clock_gettime(clock)
        waited_s = time.monotonic() - start_time
        left_s = wall_s + WALL_PER_CPU_SECOND * used_s - waited_s
        has_ended = end in events
        if max_threads is not None:
            _limit_threads(process, max_threads)
    os.kill(process, signal.SIGKILL)  # the id stays valid until wait4, even for a zombie
    _, status, usage = os.wait4(process, 0)
    os.close(end)
    if has_ended:
        used_s = usage.ru_utime + usage.ru_stime
    stopped = "cpu" if used_s >= cpu_s else "" if has_ended else "wall"
    return os.waitstatus_to_exitcode(status), used_s, waited_s, stopped


def _limit_threads(process: int, max_threads: int) -> None:
    """Prevent a process with too many threads from starting further threads."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if int(fields[17]) > max_threads + 1:
            resource.prlimit(process, resource.RLIMIT_NPROC, (0, 0))
    except (FileNotFoundError, ProcessLookupError):  # ended
        pass
