"""Stability of the source states over independent sample sets."""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def stability() -> object:
    """Whether the S/U split holds under other samples of the source, and what it moves."""
    from gapft_harness.experiments.stability.experiment import StabilityExperiment

    return StabilityExperiment()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the check."""
    register("stability", stability)
