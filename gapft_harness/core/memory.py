"""Measure the free memory of the machine or of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.core.cgroups import read_cgroup_free_memory

if TYPE_CHECKING:
    import torch


def measure_free_memory(device: torch.device) -> int:
    """Measure the free memory of a device in bytes.

    For a CPU this is the system's available memory, capped by the limits of this process's control
    groups (a container's, a cluster job's). For a GPU it includes memory that this process's
    allocator has reserved but not assigned to a tensor.
    """
    if device.type == "cuda":
        import torch

        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    import psutil

    available = int(psutil.virtual_memory().available)
    group_free = read_cgroup_free_memory()
    return available if group_free is None else min(available, group_free)
