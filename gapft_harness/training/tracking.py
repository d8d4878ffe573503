"""Log trainings with one of accelerate's trackers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gapft_harness.hooks.protocols import TrainingJob


@contextlib.contextmanager
def open_tracker(job: TrainingJob) -> Iterator[Callable[[dict[str, Any], int], None]]:
    """Open the job's tracker, if any; yield the function that logs the figures of a step.

    Each arm is a run of the tracker's project, which has the name of the run directory.
    """
    if job.tracker is None:
        yield lambda values, step: None
        return
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # accelerate's trackers ask it whether they are in the main process
    run = job.run.resolve()
    folder = run / "tracking"
    folder.mkdir(parents=True, exist_ok=True)
    arguments: dict[str, dict[str, Any]] = {
        "tensorboard": {"run_name": job.arm.name, "logging_dir": folder},
        "wandb": {"run_name": run.name, "name": job.arm.name, "dir": str(folder)},
        "trackio": {"run_name": run.name, "name": job.arm.name},
    }
    tracker = LOGGER_TYPE_TO_CLASS[job.tracker](**arguments[job.tracker])
    tracker.start()
    try:
        tracker.store_init_configuration({key: str(job.settings[key]) for key in job.settings})
        yield tracker.log
    finally:
        tracker.finish()
