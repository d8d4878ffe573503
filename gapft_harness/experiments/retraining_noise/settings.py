"""What a recipe says of retraining noise: which arms are trained again, and what is drawn anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from gapft_harness.core.records import Arm
from gapft_harness.recipe.section import RecipeSection


class NoiseSettings(RecipeSection):
    """What a recipe says under ``experiments.retraining_noise``."""

    conditions: tuple[str, ...] = Field(
        min_length=1, description="conditions whose arms are trained again"
    )
    seeds: tuple[int, ...] = Field((), description="of these seeds; none named: of all")
    vary: tuple[Literal["none", "order", "dropout", "adapter", "all"], ...] = Field(
        ("none",),
        min_length=1,
        description="a replicate of each: what is drawn anew (`none`: nothing; `order` of the "
        "examples; `dropout`; the initial `adapter`; or `all` three)",
    )


def replicates_of(arm: Arm, settings: NoiseSettings) -> list[Arm]:
    """An arm's replicates that settings ask for."""
    if arm.condition not in settings.conditions or arm.seed not in (settings.seeds or [arm.seed]):
        return []
    return [replace(arm, variant=variant) for variant in dict.fromkeys(settings.vary)]
