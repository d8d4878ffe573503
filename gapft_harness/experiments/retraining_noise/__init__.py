"""Retraining noise: arms trained a second time, and how many of their decisions change."""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def retraining_noise() -> object:
    """How many audit decisions change when an arm is trained again on the same examples."""
    from gapft_harness.experiments.retraining_noise.experiment import RetrainingNoise

    return RetrainingNoise()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("retraining_noise", retraining_noise)
