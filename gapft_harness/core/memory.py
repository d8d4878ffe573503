"""Measure the free memory of the machine or of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.core.cgroups import free_in_cgroups

if TYPE_CHECKING:
    import torch


def free_memory(device: torch.device) -> int:
    """Measure the free memory of a device in bytes.

    For a CPU this is the system's available memory, capped by the limits of this process's control
    groups (a container's, a cluster job's). For a GPU it includes memory that this process's
    allocator has reserved but not assigned to a tensor.
    """
    if device.type == "cuda":
        import torch

        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    import psutil

    available = int(psutil.virtual_memory().available)
    left = free_in_cgroups()
    return available if left is None else min(available, left)
