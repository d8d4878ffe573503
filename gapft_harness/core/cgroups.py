"""Read the memory and CPU limits of this process's control groups (of a container or a job).

Docker, Kubernetes and Slurm set these limits. The system's own counts ignore them, but a process
that exceeds the memory limit is killed, and a process that exceeds the CPU quota is throttled. Only
version 2 of the interface is read, see cgroups(7), at its usual mount point.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def read_usable_memory(root: Path = Path("/")) -> int:
    """Read the memory in bytes, used or free, that this process's groups may use in total."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [_read_limit(folder) for folder in _find_groups(root)]
    return min([machine, *(limit for limit in limits if limit is not None)])


def count_usable_cores(root: Path = Path("/")) -> float:
    """Count the CPUs that this process may use: its affinity, or its groups' quota if lower."""
    quotas = [_read_quota(folder) for folder in _find_groups(root)]
    affinity = getattr(os, "sched_getaffinity", None)  # not available on macOS
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    return min([cores, *(quota for quota in quotas if quota is not None)])


def compute_threads_per_process(processes: int) -> int:
    """Compute the number of CPU threads for each of several processes on this machine.

    In total they use no more than the cores that this process may use. Each uses at least one
    thread, and at most ``OMP_NUM_THREADS`` if that is set.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    threads = max(1, int(count_usable_cores()) // processes)
    return min(threads, int(limit)) if limit.isdecimal() and int(limit) else threads


def _find_groups(root: Path) -> Iterator[Path]:
    """Yield the folder of this process's group, then those of its parents; some may not exist.

    In a container the mount point is the container's own group, whose name may be the host's.

    Args:
        root: the folder that contains ``proc`` and the mounted groups.
    """
    top = root / "sys/fs/cgroup"
    try:
        memberships = (root / "proc/self/cgroup").read_text("utf-8")
    except OSError:  # not Linux, or no control groups
        return
    for line in memberships.splitlines():
        name = line.removeprefix("0::/")
        if name == line:  # a group of version 1
            continue
        group = top if ".." in Path(name).parts else top / name
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _read_limit(folder: Path) -> int | None:
    try:
        limit = (folder / "memory.max").read_text("utf-8").strip()
    except OSError:  # the root group has no such file, or there is no such group
        return None
    return None if limit == "max" else int(limit)


def _read_quota(folder: Path) -> float | None:
    """Read a group's CPU quota, as a number of CPUs; None ("max" in the file) is no limit."""
    try:
        quota, period = (folder / "cpu.max").read_text("utf-8").split()
    except OSError:
        return None
    return None if quota == "max" else int(quota) / int(period)
