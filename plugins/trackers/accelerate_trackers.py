"""The bundled trackers: accelerate's own, with one tracker run per arm."""

from __future__ import annotations

import os
from typing import Any

from gapft_harness.api import RegisterTracker, TrackedArm, Tracker, hookimpl


def tensorboard(arm: TrackedArm) -> Tracker:
    """Create event files in tracking/tensorboard/ of the run directory."""
    from accelerate.tracking import TensorBoardTracker

    # hides steps that an interrupted training logged after its last checkpoint
    purge = {"purge_step": arm.first_step}
    return _start(TensorBoardTracker(arm.arm.name, arm.folder / "tensorboard", **purge), arm)


def wandb(arm: TrackedArm) -> Tracker:
    """Create a Weights & Biases run; WANDB_PROJECT, WANDB_MODE and its other variables apply."""
    from accelerate.tracking import WandBTracker

    arm.folder.mkdir(parents=True, exist_ok=True)
    project = os.environ.get("WANDB_PROJECT", arm.project)
    names = {"name": arm.name, "group": arm.run, "dir": str(arm.folder)}
    return _start(WandBTracker(project, **names), arm)


def trackio(arm: TrackedArm) -> Tracker:
    """Create a Trackio run in its own local database; TRACKIO_PROJECT and TRACKIO_DIR apply."""
    from accelerate.tracking import TrackioTracker

    project = os.environ.get("TRACKIO_PROJECT", arm.project)
    return _start(TrackioTracker(project, name=arm.name, group=arm.run), arm)


def _start(tracker: Any, arm: TrackedArm) -> Tracker:
    tracker.start()
    tracker.store_init_configuration(dict(arm.settings))
    started: Tracker = tracker
    return started


@hookimpl
def register_trackers(register: RegisterTracker) -> None:
    """Register the three trackers."""
    register("tensorboard", tensorboard, needs=("tensorboard",))
    register("wandb", wandb, needs=("wandb",))
    register("trackio", trackio, needs=("trackio",))
