"""How much memory is free, of the machine or of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.core.cgroups import free_in_cgroups

if TYPE_CHECKING:
    import torch


def free_memory(device: torch.device) -> int:
    """Compute the bytes that are free on a device.

    On a CPU those that the system calls available, and no more than a limit on this process's
    control groups leaves (a container's, a cluster job's). Of a GPU's memory, what this process's
    allocator holds without a tensor in it is free too.
    """
    if device.type == "cuda":
        import torch

        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    import psutil

    available = int(psutil.virtual_memory().available)
    left = free_in_cgroups()
    return available if left is None else min(available, left)
