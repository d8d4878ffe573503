"""How much memory and CPU this process's control groups leave it: a container's or a job's limits.

Docker, Kubernetes and Slurm set them. The system's own counts do not know them, and a process that
surpasses the memory is killed, one that surpasses the CPU time is slowed. Both versions of the
interface are read, as cgroups(7) describes it: ``/proc/self/cgroup`` names the groups,
``/proc/self/mountinfo`` where they are seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Files:
    """The names that one version of the interface gives to a group's files."""

    limit: str
    used: str
    cache: str


_V2 = _Files("memory.max", "memory.current", "inactive_file")
_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_CPU_V1 = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


def free_in_cgroups(root: Path = Path("/")) -> int | None:
    """Bytes that the tightest memory limit of this process's groups and their parents leaves.

    File pages that nobody has used lately count as free: the kernel takes them back first.

    Args:
        root: what ``proc`` and the mounted groups lie under.

    Returns:
        None where no group has a limit; of version 1, "no limit" is a number beyond any memory.
    """
    free = [_free(folder, _V2 if new else _V1) for folder, new in _groups(root, "memory")]
    return min((left for left in free if left is not None), default=None)


def usable_memory(root: Path = Path("/")) -> int:
    """Bytes that this process and all beside it in its groups may have, used or not."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [
        _limit(folder / (_V2 if new else _V1).limit) for folder, new in _groups(root, "memory")
    ]
    return min([machine, *(limit for limit in limits if limit is not None)])


def usable_cores(root: Path = Path("/")) -> float:
    """CPUs that this process may use: its affinity, or its groups' quota where that is less."""
    quotas = [_quota(folder, new) for folder, new in _groups(root, "cpu")]
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    return min([cores, *(quota for quota in quotas if quota is not None)])


def threads_per_process(processes: int) -> int:
    """Compute how many CPU threads each of some processes on this machine should use.

    All together use no more than the cores that this process may use; each uses at least one, and
    no more than ``OMP_NUM_THREADS`` says.
    """
    limit = os.environ.get("OMP_NUM_THREADS", "")
    threads = max(1, int(usable_cores()) // processes)
    return min(threads, int(limit)) if limit.isdecimal() and int(limit) else threads


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """This process's groups that may limit something, each followed by its parents.

    With each: whether it is one of version 2.
    """
    try:
        own = (root / "proc/self/cgroup").read_text("utf-8")
        mounts = (root / "proc/self/mountinfo").read_text("utf-8")
    except OSError:  # no Linux, or no control groups
        return
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for shown, at in _mounts(mounts, controller if controllers else None):
            top = root / at.lstrip("/")
            try:
                inside = PurePosixPath(path).relative_to(shown)
            except ValueError:  # the mount shows a container's own group, as its top
                inside = PurePosixPath()
            if ".." in inside.parts:
                inside = PurePosixPath()
            group = top / inside
            within = (each for each in (group, *group.parents) if each.is_relative_to(top))
            yield from ((folder, not controllers) for folder in within)


def _mounts(mounts: str, controller: str | None) -> Iterator[tuple[str, str]]:
    """The group that is seen at each mount, and where; of version 2 without a controller."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if (
            kind == "cgroup2"
            if controller is None
            else kind == "cgroup" and controller in options.split(",")
        ):
            yield tuple(before.split(" ")[3:5])  # type: ignore[misc]


def _limit(file: Path) -> int | None:
    try:
        limit = file.read_text("utf-8").strip()
    except OSError:  # the top of all has no such file
        return None
    return None if limit == "max" else int(limit)


def _free(folder: Path, files: _Files) -> int | None:
    limit = _limit(folder / files.limit)
    if limit is None:
        return None
    try:
        used = int((folder / files.used).read_text("utf-8"))
        lines = (folder / "memory.stat").read_text("utf-8").splitlines()
    except OSError:
        return None
    cache = dict(line.split(" ", 1) for line in lines).get(files.cache, "0")
    return max(0, limit - used + int(cache))


def _quota(folder: Path, new: bool) -> float | None:
    """CPUs that a group may use: microseconds in a period; "max" and -1 are no limit."""
    names = ("cpu.max",) if new else _CPU_V1
    try:
        quota, period = " ".join((folder / name).read_text("utf-8") for name in names).split()
    except OSError:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
