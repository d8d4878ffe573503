"""Limits of control groups, read from files with the kernel's layout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gapft_harness.core import cgroups
from gapft_harness.core.cgroups import (
    compute_threads_per_process,
    count_usable_cores,
    read_usable_memory,
)
from gapft_harness.recipe.sections import ExecutorChoice

MB = 10**6


def write_process(root: Path, own: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)


def write_group(folder: Path, limit: str | int, cpu: str = "max 1") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "cpu.max").write_text(f"{cpu}\n")


def test_lowest_limit_of_group_and_parents_applies(tmp_path: Path) -> None:
    """As in a Slurm job: the step has no limit, the job has one, the top has no files."""
    cores = float(len(os.sched_getaffinity(0)))
    memory = read_usable_memory(tmp_path)
    assert memory == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert count_usable_cores(tmp_path) == cores
    groups = "4:memory:/job\n1:name=systemd:/x\n"  # of version 1
    write_process(tmp_path, f"{groups}0::/slurm/job_7/step_0\n")
    top = tmp_path / "sys/fs/cgroup/slurm"
    write_group(top / "job_7/step_0", "max", cpu="max 100000")
    assert read_usable_memory(tmp_path) == memory
    assert count_usable_cores(tmp_path) == cores
    write_group(top, 64 * MB, cpu="50000 100000")
    write_group(top / "job_7", 16 * MB, cpu="10000 50000")
    assert read_usable_memory(tmp_path) == 16 * MB
    assert count_usable_cores(tmp_path) == 0.2
    write_group(top, 4 * MB)
    assert read_usable_memory(tmp_path) == 4 * MB


@pytest.mark.parametrize(
    "own",
    ["/", "/docker/abc", "/../other"],
    ids=["own namespace", "the host's names", "moved out"],
)
def test_container_group_is_the_root(tmp_path: Path, own: str) -> None:
    write_process(tmp_path, f"0::{own}\n")
    write_group(tmp_path / "sys/fs/cgroup", 4 * MB)
    write_group(tmp_path / "sys/fs/other", 2 * MB)
    assert read_usable_memory(tmp_path) == 4 * MB


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
