"""What all sections of a recipe are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RecipeSection(BaseModel):
    """Unknown keys are errors; values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
