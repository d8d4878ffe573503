"""What a recipe says of an allocation comparison."""

from __future__ import annotations

from pydantic import Field

from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection


class Allocation(RecipeSection):
    """What a recipe says of the comparison."""

    diffuse: str = Field(description="condition that sees the halves A and B once each")
    concentrated: str = Field(description="condition that sees half A twice")


def compared(recipe: Recipe) -> Allocation | None:
    """What a checked recipe says; None if it compares no allocations."""
    said = recipe.experiments.get("allocation")
    return None if said is None else Allocation.model_validate(said)
