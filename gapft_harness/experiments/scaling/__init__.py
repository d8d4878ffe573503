"""Adapter scaling: one trained adapter at the scale that calibration allows."""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def scaling() -> object:
    """Chooses every adapter's scale on a calibration split, and compares it on the audit."""
    from gapft_harness.experiments.scaling.experiment import ScalingExperiment

    return ScalingExperiment()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers adapter scaling."""
    register("scaling", scaling)
