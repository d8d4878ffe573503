"""Coverage against repetition: which problems the same responses are spent on."""

from __future__ import annotations

from gapft_harness.experiments.allocation.experiment import AllocationExperiment
from gapft_harness.hooks.specs import hookimpl


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the comparison."""
    register("allocation", AllocationExperiment)
