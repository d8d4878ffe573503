"""What a recipe says of stability: which samples make a set."""

from __future__ import annotations

from pydantic import Field

from gapft_harness.stages.experiment.adapters import OfAdapters
from gapft_harness.stages.search.states import Window


class StabilitySettings(OfAdapters):
    """What a recipe says under ``experiments.stability``; the defaults are the paper's."""

    sets: int = Field(4, ge=2, description="independent sample sets")
    k: int = Field(8, ge=1, description="K, samples of a set")

    def windows(self) -> list[Window]:
        """Adjacent windows, which share no sample."""
        return [Window(self.k * number, self.k) for number in range(self.sets)]
