"""The demo's whole grid with Ray tasks compared with the local executor's processes."""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path

from gapft_harness.executors.ray import RayExecutor
from gapft_harness.hooks.protocols import Job
from tests.benchmarks.measure import Figure, run_process, time_in_turn

WORKERS, ROUNDS = 2, 2


def measure(folder: Path) -> list[Figure]:
    """Time whole commands: 4 conditions x 3 seeds, from search to report.

    Ray is already running with the same two CPUs. Each command joins it and gets its own workers,
    so both sides import torch in two processes.
    """
    number = itertools.count()

    def demo(*settings: str) -> None:
        overrides = [f"executor.workers={WORKERS}", *settings]
        run_process(
            [
                sys.executable, "-m", "gapft_harness.cli.main", "run", "demo", "--run-dir",
                str(folder / f"run{next(number)}"),
                *(word for setting in overrides for word in ("--set", setting)),
            ],
            folder,
        )  # fmt: skip

    with contextlib.closing(RayExecutor({"workers": WORKERS, "threads": 1})) as executor:
        started = Job("start", "tests.executors.job_functions:nap", {"value": 0})
        executor.run([started], lambda label, done, total: None)
        import ray  # after starting our Ray: it reads its settings on import

        address = ray.get_runtime_context().gcs_address
        ratio, a, b = time_in_turn(
            lambda: demo("executor.name=ray", f"executor.address={address}"), demo, ROUNDS
        )
    return [
        Figure(
            "gapft run demo, Ray / local executor",
            ratio,
            1.3,
            detail=f"{a:.0f} s against {b:.0f} s",
        )
    ]
