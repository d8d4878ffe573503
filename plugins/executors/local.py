"""The bundled executor: worker processes on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.api import Executor, RegisterExecutor, hookimpl


def local(settings: Mapping[str, Any], plugin_files: Sequence[str]) -> Executor:
    """Worker processes on this machine, as many as executor.workers says."""
    from gapft_harness.api import LocalExecutor

    return LocalExecutor(settings, plugin_files)


@hookimpl
def register_executors(register: RegisterExecutor) -> None:
    """Registers it."""
    register("local", local, by_workers=True)
