"""The bundled Ray executor: jobs as Ray tasks on one machine or a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.api import Executor, RegisterExecutor, hookimpl


def ray(settings: Mapping[str, Any], plugin_files: Sequence[str]) -> Executor:
    """Ray tasks with declared CPUs, GPUs and memory, here or on the cluster at executor.address."""
    from gapft_harness.api import RayExecutor

    return RayExecutor(settings, plugin_files)


@hookimpl
def register_executors(register: RegisterExecutor) -> None:
    """Registers it."""
    register("ray", ray)
