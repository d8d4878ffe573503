"""What a recipe says of answer redistribution."""

from __future__ import annotations

from pydantic import Field

from gapft_harness.stages.experiment.adapters import OfAdapters


class RedistributionSettings(OfAdapters):
    """What a recipe says under ``experiments.redistribution``; the default is the paper's."""

    permutations: int = Field(10_000, ge=1, description="permutations of the answers")
