"""What a recipe says of adapter scaling."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, StrictInt, field_validator

from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection


class Scaling(RecipeSection):
    """What a recipe says of adapter scaling."""

    # strict, as the search reads it off the recipe as it stands there
    calibration: StrictInt | Literal["validation"] = Field(
        description="the calibration problems: `validation`, the task's validation split, or how "
        "many to take out of the training split"
    )
    level: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="level of all upper bounds of a checkpoint together, one-sided",
    )
    tolerance: float = Field(
        0.10, ge=0, le=1, description="highest upper bound of the G regression that counts as safe"
    )

    @field_validator("calibration")
    @classmethod
    def _some(cls, calibration: int | str) -> int | str:
        if isinstance(calibration, int) and calibration < 1:
            raise ValueError("must be at least 1, or `validation`")
        return calibration


def scaled(recipe: Recipe) -> Scaling | None:
    """What a checked recipe says; None if it scales nothing."""
    said = recipe.experiments.get("scaling")
    return None if said is None else Scaling.model_validate(said)
