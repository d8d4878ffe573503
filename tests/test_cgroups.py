"""Limits of control groups, read from files with the kernel's layout."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from gapft_harness.core import cgroups
from gapft_harness.core.cgroups import (
    compute_threads_per_process,
    count_usable_cores,
    read_cgroup_free_memory,
    read_usable_memory,
)
from gapft_harness.recipe.sections import ExecutorChoice

GB = 10**9
V2 = "30 23 0:26 {shown} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def write_process(root: Path, own: str, mounts: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    disk = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    (root / "proc/self/mountinfo").write_text(disk + mounts)


def write_group(
    folder: Path, limit: str | int, used: int, inactive: int = 0, cpu: str = "max 1"
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "cpu.max").write_text(f"{cpu}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nactive_file 9\n")


def test_lowest_limit_of_group_and_parents_applies(tmp_path: Path) -> None:
    """As in a Slurm job: the step has no limit, the job has one, the top has no files."""
    cores = float(len(os.sched_getaffinity(0)))
    assert read_cgroup_free_memory(tmp_path) is None
    assert read_usable_memory(tmp_path) == psutil.virtual_memory().total
    assert count_usable_cores(tmp_path) == cores
    groups = "4:memory:/job\n1:name=systemd:/x\n"  # of version 1
    write_process(tmp_path, f"{groups}0::/slurm/job_7/step_0\n", V2.format(shown="/"))
    top = tmp_path / "sys/fs/cgroup/slurm"
    write_group(top / "job_7/step_0", "max", 9 * GB, cpu="max 100000")
    assert read_cgroup_free_memory(tmp_path) is None
    assert count_usable_cores(tmp_path) == cores
    write_group(top, 64 * GB, 20 * GB, cpu="50000 100000")
    write_group(top / "job_7", 16 * GB, 10 * GB, inactive=3 * GB, cpu="10000 50000")
    assert read_cgroup_free_memory(tmp_path) == 9 * GB
    assert read_usable_memory(tmp_path) == 16 * GB
    assert count_usable_cores(tmp_path) == 0.2
    for used, free in ((60, 4), (65, 0)):
        write_group(top, 64 * GB, used * GB)
        assert read_cgroup_free_memory(tmp_path) == free * GB


@pytest.mark.parametrize(
    ("own", "shown"),
    [("/", "/"), ("/docker/abc", "/docker/abc"), ("/docker/abc", "/../.."), ("/../other", "/")],
    ids=["own namespace", "the host's names", "a mount from outside", "moved out"],
)
def test_container_group_is_the_root(tmp_path: Path, own: str, shown: str) -> None:
    write_process(tmp_path, f"0::{own}\n", V2.format(shown=shown))
    write_group(tmp_path / "sys/fs/cgroup", 4 * GB, 1 * GB, inactive=GB // 2)
    assert read_cgroup_free_memory(tmp_path) == 7 * GB // 2


@pytest.mark.parametrize(
    ("usable", "limit", "processes", "threads"),
    [
        (8.0, None, 3, 2), (2.0, None, 3, 1), (8.0, "1", 2, 1),
        (8.0, "4,2", 2, 4), (8.0, "0", 2, 4),
    ],
)  # fmt: skip
def test_threads_are_divided_among_processes(
    monkeypatch: pytest.MonkeyPatch,
    usable: float,
    limit: str | None,
    processes: int,
    threads: int,
) -> None:
    monkeypatch.setattr(cgroups, "count_usable_cores", lambda: usable)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert compute_threads_per_process(processes) == threads
    assert ExecutorChoice(workers=processes).threads_per_worker == threads
    assert ExecutorChoice(workers=processes, threads=5).threads_per_worker == 5
    assert ExecutorChoice(workers=processes, address="auto").threads_per_worker == 1
