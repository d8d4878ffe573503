"""Checks for experiments that compare conditions: names, common K and training, scaled adapters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.run_directory.recipe_changes import list_differences


class OfAdapters(RecipeSection):
    """The settings of an experiment that uses adapters as trained or as scaled."""

    adapters: Literal["trained", "scaled"] = Field(
        "trained",
        description="`scaled`: the models at the scales that experiments.scaling chose for them",
    )

    def require_scales(self, recipe: Recipe, name: str) -> None:
        """Refuse scaled adapters in a recipe without scaling.

        Args:
            recipe: the recipe.
            name: the experiment's name.

        Raises:
            UserError: the recipe has no experiment scaling.
        """
        if self.adapters == "scaled" and "scaling" not in recipe.experiments:
            raise UserError(
                f"recipe {recipe.name}: key 'experiments.{name}.adapters': is 'scaled', but the "
                "recipe has no experiments.scaling to choose the scales; add it, or remove the "
                "adapters key"
            )


def require_conditions(recipe: Recipe, key: str, names: Iterable[str]) -> None:
    """Refuse names under a key that are not conditions of the recipe.

    Args:
        recipe: the recipe.
        key: the key, such as ``experiments.online.reference``.
        names: its values.

    Raises:
        UserError: a name is not a condition.
    """
    for name in names:
        if name not in recipe.conditions:
            raise UserError(
                f"recipe {recipe.name}: key '{key}': {name!r} is not a condition of the recipe; "
                f"{did_you_mean(name, recipe.conditions)}"
            )


def require_same_settings(recipe: Recipe, name: str, conditions: Sequence[str]) -> None:
    """Require that conditions differ only in their training sets, as far as the recipe tells.

    Args:
        recipe: the recipe.
        name: the experiment's name.
        conditions: the conditions that it compares.

    Raises:
        UserError: one has another K or other training settings; the message names the keys.
    """
    settings_by_condition = find_own_settings(recipe.model_dump(mode="json"))
    for condition in conditions:
        if changed_settings := list_differences(
            settings_by_condition[conditions[0]], settings_by_condition[condition]
        ):
            raise UserError(
                f"recipe {recipe.name}: the experiment {name} compares conditions that differ only "
                f"in their training sets, but {conditions[0]!r} and {condition!r} have different "
                f"settings: {'; '.join(changed_settings)}. Use the same settings for both, or "
                "remove the experiment: the report's contrasts still compare them, with a mark"
            )
