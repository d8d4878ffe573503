"""Stability of the source states, as an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.experiments.stability.settings import StabilitySettings
from gapft_harness.stages.search.windows import OnWindows

if TYPE_CHECKING:
    from gapft_harness.experiments.stability.report import StabilityPart


class StabilityExperiment(OnWindows):
    """Whether the S/U split holds under other samples of the source, and what it moves."""

    name = stage = "stability"
    section = StabilitySettings

    def part(self) -> StabilityPart:
        """Its section and table."""
        from gapft_harness.experiments.stability.report import StabilityPart

        return StabilityPart()
