"""The bundled executors: worker processes on this machine, and Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.api import Executor, Register, hookimpl


def local(settings: Mapping[str, Any], plugin_files: Sequence[str]) -> Executor:
    """Create worker processes on this machine, as many as executor.workers."""
    from gapft_harness.executors.local import LocalExecutor

    return LocalExecutor(settings, plugin_files)


def ray(settings: Mapping[str, Any], plugin_files: Sequence[str]) -> Executor:
    """Create Ray tasks with declared CPUs, GPUs and memory, locally or on executor.address."""
    from gapft_harness.executors.ray import RayExecutor

    return RayExecutor(settings, plugin_files)


@hookimpl
def register_executors(register: Register) -> None:
    """Register both executors."""
    register("local", local, by_workers=True)
    register("ray", ray)
