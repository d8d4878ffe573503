"""The kernel's limits on one process, set on the worker and inherited by its forks."""

from __future__ import annotations

import math
import resource
from dataclasses import dataclass

#: Descriptors a program may have open.
DESCRIPTORS = 64
#: Seconds of CPU after which the kernel kills what the worker, dead by then, could not.
ORPHAN_SECONDS = 2


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Numbers for ``setrlimit``, the same for every test of a worker.

    Attributes:
        address_space: bytes, the warm interpreter's own included.
        file_bytes: the largest file that can be written, standard output included.
        tasks: processes and threads of this user at once; None for as many as the user may have.
    """

    address_space: int
    file_bytes: int
    tasks: int | None

    def apply(self) -> None:
        """Binds the calling process and its forks, each by itself."""
        tasks = resource.getrlimit(resource.RLIMIT_NPROC)[1] if self.tasks is None else self.tasks
        for kind, value in (
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_NOFILE, DESCRIPTORS),
            (resource.RLIMIT_NPROC, tasks),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_SIGPENDING, 64),
            (resource.RLIMIT_AS, self.address_space),
        ):
            resource.setrlimit(kind, (value, value))


def cpu_limits(cpu_s: float) -> tuple[int, int]:
    """For ``RLIMIT_CPU``: the kernel kills a process some time after its CPU limit."""
    seconds = math.ceil(cpu_s) + ORPHAN_SECONDS
    return seconds, seconds


def widen_stack(memory_bytes: int) -> bool:
    """Gives this process the stack that programs start with: deep recursion takes far over 8 MiB.

    The hard limit is lifted where that is allowed: many programs set both to infinity. It is the
    address space that bounds a stack.

    Returns:
        Whether the limits were changed: the kernel lays out memory at exec, which is due then.
    """
    now = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = min(memory_bytes, 512 << 20)
    if now == (wanted, resource.RLIM_INFINITY):
        return False
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, resource.RLIM_INFINITY))
    except ValueError:  # an ordinary user whose hard limit was lowered
        wanted = min(wanted, now[1])
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, now[1]))
    return resource.getrlimit(resource.RLIMIT_STACK) != now


def own_address_space() -> int:
    """Bytes of address space this process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
