"""How much memory this process's control groups leave it: a container's or a job's limit.

Docker, Kubernetes and Slurm set one; the system's own count of available memory does not know it,
and a process that surpasses it is killed. Both versions of the interface are read, as cgroups(7)
describes it: ``/proc/self/cgroup`` names the groups, ``/proc/self/mountinfo`` where they are seen.
"""

from __future__ import annotations

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


def free_in_cgroups(root: Path = Path("/")) -> int | None:
    """Bytes that the tightest memory limit of this process's groups and their parents leaves.

    File pages that nobody has used lately count as free: the kernel takes them back first.

    Args:
        root: what ``proc`` and the mounted groups lie under.

    Returns:
        None where no group has a limit; of version 1, "no limit" is a number beyond any memory.
    """
    left = [free for folder, files in _groups(root) if (free := _free(folder, files)) is not None]
    return min(left, default=None)


def _groups(root: Path) -> Iterator[tuple[Path, _Files]]:
    """This process's groups that may limit memory, each followed by its parents."""
    try:
        own = (root / "proc/self/cgroup").read_text("utf-8")
        mounts = (root / "proc/self/mountinfo").read_text("utf-8")
    except OSError:  # no Linux, or no control groups
        return
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files, wanted = _V2, "cgroup2"
        elif "memory" in controllers.split(","):
            files, wanted = _V1, "cgroup"
        else:
            continue
        for shown, at in _mounts(mounts, wanted):
            top = root / at.lstrip("/")
            try:
                inside = PurePosixPath(path).relative_to(shown)
            except ValueError:  # the mount shows a container's own group, as its top
                inside = PurePosixPath()
            if ".." in inside.parts:
                inside = PurePosixPath()
            group = top / inside
            yield from ((folder, files) for folder in (group, *_parents(group, top)))


def _mounts(mounts: str, wanted: str) -> Iterator[tuple[str, str]]:
    """The group that is seen at each mount of a version that has memory groups, and where."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == wanted and (kind == "cgroup2" or "memory" in options.split(",")):
            yield tuple(before.split(" ")[3:5])  # type: ignore[misc]


def _parents(group: Path, top: Path) -> Iterator[Path]:
    while group != top:
        group = group.parent
        yield group


def _free(folder: Path, files: _Files) -> int | None:
    try:
        limit = (folder / files.limit).read_text("utf-8").strip()
        used = int((folder / files.used).read_text("utf-8"))
        lines = (folder / "memory.stat").read_text("utf-8").splitlines()
    except OSError:  # the top of all has no such files
        return None
    if limit == "max":
        return None
    cache = dict(line.split(" ", 1) for line in lines).get(files.cache, "0")
    return max(0, int(limit) - used + int(cache))
