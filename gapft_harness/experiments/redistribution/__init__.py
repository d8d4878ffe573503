"""Answer redistribution: would answer frequencies alone correct as much?"""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def redistribution() -> object:
    """Whether corrections are tied to their problems, or answer frequencies would do."""
    from gapft_harness.experiments.redistribution.experiment import RedistributionExperiment

    return RedistributionExperiment()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the control."""
    register("redistribution", redistribution)
