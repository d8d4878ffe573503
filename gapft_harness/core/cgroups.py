"""Read the memory and CPU limits of this process's control groups (of a container or a job).

Docker, Kubernetes and Slurm set these limits. The system's own counts ignore them, but a process
that exceeds the memory limit is killed, and a process that exceeds the CPU quota is throttled. Both
versions of the interface are supported, see cgroups(7): ``/proc/self/cgroup`` names the groups, and
``/proc/self/mountinfo`` their mount points.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Files:
    """The file names of a group's memory values in one version of the interface."""

    limit: str
    used: str
    cache: str


_V2 = _Files("memory.max", "memory.current", "inactive_file")
_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_CPU_V1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


def read_cgroup_free_memory(root: Path = Path("/")) -> int | None:
    """Read the free memory under the tightest limit of this process's groups and their parents.

    Inactive file pages count as free: the kernel reclaims them first.

    Args:
        root: the folder that contains ``proc`` and the mounted groups.

    Returns:
        Bytes; None if no group has a limit. In version 1 "no limit" is a number larger than any
        memory.
    """
    free = [
        _read_free(folder, _V2 if is_v2 else _V1) for folder, is_v2 in _find_groups(root, "memory")
    ]
    return min((amount for amount in free if amount is not None), default=None)


def read_usable_memory(root: Path = Path("/")) -> int:
    """Read the memory in bytes, used or free, that this process's groups may use in total."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _read_limit(folder / (_V2 if is_v2 else _V1).limit)
        for folder, is_v2 in _find_groups(root, "memory")
    ]
    return min([machine, *(limit for limit in limits if limit is not None)])


def count_usable_cores(root: Path = Path("/")) -> float:
    """Count the CPUs that this process may use: its affinity, or its groups' quota if lower."""
    quotas = [_read_quota(folder, is_v2) for folder, is_v2 in _find_groups(root, "cpu")]
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


def _find_groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield (folder, whether it is version 2) of this process's groups, each before its parents.

    Args:
        root: the folder that contains ``proc`` and the mounted groups.
        controller: ``memory`` or ``cpu``; groups that do not control it are skipped.
    """
    try:
        memberships = (root / "proc/self/cgroup").read_text("utf-8")
        mounts = (root / "proc/self/mountinfo").read_text("utf-8")
    except OSError:  # not Linux, or no control groups
        return
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mounted_group, mount_point in _find_mounts(mounts, controller if controllers else None):
            top = root / mount_point.lstrip("/")
            try:
                relative = PurePosixPath(path).relative_to(mounted_group)
            except ValueError:  # in a container the mount shows the container's group as its root
                relative = PurePosixPath()
            if ".." in relative.parts:
                relative = PurePosixPath()
            group = top / relative
            folders = (
                candidate for candidate in (group, *group.parents) if candidate.is_relative_to(top)
            )
            yield from ((folder, not controllers) for folder in folders)


def _find_mounts(mounts: str, controller: str | None) -> Iterator[tuple[str, str]]:
    """Yield (mounted group, mount point) of a version 1 controller; of version 2 for None."""
    for line in mounts.splitlines():
        fields, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if (
            kind == "cgroup2"
            if controller is None
            else kind == "cgroup" and controller in options.split(",")
        ):
            yield tuple(fields.split(" ")[3:5])  # type: ignore[misc]


def _read_limit(file: Path) -> int | None:
    try:
        limit = file.read_text("utf-8").strip()
    except OSError:  # the root group has no such file
        return None
    return None if limit == "max" else int(limit)


def _read_free(folder: Path, files: _Files) -> int | None:
    limit = _read_limit(folder / files.limit)
    if limit is None:
        return None
    try:
        used = int((folder / files.used).read_text("utf-8"))
        lines = (folder / "memory.stat").read_text("utf-8").splitlines()
    except OSError:
        return None
    cache = dict(line.split(" ", 1) for line in lines).get(files.cache, "0")
    return max(0, limit - used + int(cache))


def _read_quota(folder: Path, is_v2: bool) -> float | None:
    """Read a group's CPU quota, as a number of CPUs; None ("max" or -1 in the file) is no limit."""
    names = ("cpu.max",) if is_v2 else _CPU_V1
    try:
        quota, period = " ".join((folder / name).read_text("utf-8") for name in names).split()
    except OSError:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
