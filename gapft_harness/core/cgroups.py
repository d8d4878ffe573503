"""Read the memory and CPU limits of this process's control groups (of a container or a job).

Docker, Kubernetes and Slurm set these limits. The system's own counts ignore them, but a process
that exceeds the memory limit is killed, and a process that exceeds the CPU quota is throttled. Only
version 2 of the interface is read, see cgroups(7): ``/proc/self/cgroup`` names the group, and
``/proc/self/mountinfo`` the mount points.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def read_cgroup_free_memory(root: Path = Path("/")) -> int | None:
    """Read the free memory under the tightest limit of this process's groups and their parents.

    Inactive file pages count as free: the kernel reclaims them first.

    Args:
        root: the folder that contains ``proc`` and the mounted groups.

    Returns:
        Bytes; None if no group has a limit.
    """
    free = [_read_free(folder) for folder in _find_groups(root)]
    return min((amount for amount in free if amount is not None), default=None)


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
    """Yield the folder of this process's group, then those of its parents.

    Args:
        root: the folder that contains ``proc`` and the mounted groups.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text("utf-8")
        mounts = (root / "proc/self/mountinfo").read_text("utf-8")
    except OSError:  # not Linux, or no control groups
        return
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers:  # a group of version 1
            continue
        for mounted_group, mount_point in _find_mounts(mounts):
            top = root / mount_point.lstrip("/")
            try:
                relative = PurePosixPath(path).relative_to(mounted_group)
            except ValueError:  # in a container the mount shows the container's group as its root
                relative = PurePosixPath()
            if ".." in relative.parts:
                relative = PurePosixPath()
            group = top / relative
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _find_mounts(mounts: str) -> Iterator[tuple[str, str]]:
    """Yield (mounted group, mount point) of each mount of version 2."""
    for line in mounts.splitlines():
        fields, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            yield tuple(fields.split(" ")[3:5])  # type: ignore[misc]


def _read_limit(folder: Path) -> int | None:
    try:
        limit = (folder / "memory.max").read_text("utf-8").strip()
    except OSError:  # the root group has no such file
        return None
    return None if limit == "max" else int(limit)


def _read_free(folder: Path) -> int | None:
    limit = _read_limit(folder)
    if limit is None:
        return None
    try:
        used = int((folder / "memory.current").read_text("utf-8"))
        lines = (folder / "memory.stat").read_text("utf-8").splitlines()
    except OSError:
        return None
    cache = dict(line.split(" ", 1) for line in lines).get("inactive_file", "0")
    return max(0, limit - used + int(cache))


def _read_quota(folder: Path) -> float | None:
    """Read a group's CPU quota, as a number of CPUs; None ("max" in the file) is no limit."""
    try:
        quota, period = (folder / "cpu.max").read_text("utf-8").split()
    except OSError:
        return None
    return None if quota == "max" else int(quota) / int(period)
