"""The kernel's limits for one process, set in the worker and inherited by its forks."""

from __future__ import annotations

import math
import resource

#: Maximum open descriptors of a program.
DESCRIPTORS = 64
#: Extra CPU seconds after which the kernel kills a program whose worker has died.
ORPHAN_SECONDS = 2


def limit_process(address_space: int, file_bytes: int, tasks: int | None) -> None:
    """Limit the calling process and its forks, each separately.

    Args:
        address_space: bytes, including those of the preloaded interpreter.
        file_bytes: the size of the largest file, including standard output.
        tasks: simultaneous processes and threads of this user; None for the user's own limit.
    """
    tasks = resource.getrlimit(resource.RLIMIT_NPROC)[1] if tasks is None else tasks
    for kind, value in (
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_NPROC, tasks),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 64),
        (resource.RLIMIT_AS, address_space),
    ):
        resource.setrlimit(kind, (value, value))


def compute_cpu_limits(cpu_s: float) -> tuple[int, int]:
    """Compute values for ``RLIMIT_CPU``: the kernel kills a process shortly after its CPU limit."""
    seconds = math.ceil(cpu_s) + ORPHAN_SECONDS
    return seconds, seconds


def widen_stack(memory_bytes: int) -> bool:
    """Set the stack limit that programs start with: deep recursion needs far more than 8 MiB.

    The hard limit is removed if permitted, since many programs set both limits to infinity; the
    address space limits the stack in any case.

    Returns:
        Whether the limits were changed. If so, the process must exec, since the kernel lays out
        memory then.
    """
    current = resource.getrlimit(resource.RLIMIT_STACK)
    size = min(memory_bytes, 512 << 20)
    if current == (size, resource.RLIM_INFINITY):
        return False
    try:
        resource.setrlimit(resource.RLIMIT_STACK, (size, resource.RLIM_INFINITY))
    except ValueError:  # an ordinary user whose hard limit was lowered
        size = min(size, current[1])
        resource.setrlimit(resource.RLIMIT_STACK, (size, current[1]))
    return resource.getrlimit(resource.RLIMIT_STACK) != current


def read_address_space() -> int:
    """Read the current address space of this process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
