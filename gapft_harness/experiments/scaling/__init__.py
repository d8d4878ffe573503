"""Adapter scaling: one trained adapter at the scale that calibration allows."""

from __future__ import annotations

from gapft_harness.experiments.scaling.experiment import ScalingExperiment
from gapft_harness.hooks.specs import hookimpl


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers adapter scaling."""
    register("scaling", ScalingExperiment)
