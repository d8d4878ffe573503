"""The randomized control: conditions of the selector ``randomized_inclusion``, by their share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gapft_harness.core.errors import UserError
from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.steps import Step, by_parameter
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.reports.inclusion import InclusionPart


class Settings(RecipeSection):
    """What a recipe says of it."""

    permutations: int = Field(2000, gt=0, description="permutations of the inclusion test")


class RandomizedInclusion(Control):
    """At one budget, a random share of the failures that late samples recover first."""

    name = "randomized_inclusion"
    section = Settings
    needs = (
        "two conditions or more of the selector randomized_inclusion, such as late_0: {selector: "
        "randomized_inclusion, params: {share: 0}} and late_100: {selector: randomized_inclusion, "
        "params: {share: 1}}"
    )

    title = "Randomized inclusion"
    axis = "share of the failures that late samples recover first"

    def part(self) -> InclusionPart:
        """Its section, figure and tables."""
        from gapft_harness.experiments.controls.reports.inclusion import InclusionPart

        return InclusionPart(self)

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """By ascending share."""
        return by_parameter(conditions, self.name, "share", lambda share: f"{100 * share:g}%")

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Control.settings``; shares of different late failures are refused as well."""
        found = super().settings(recipe, options)
        if found is not None:
            self._one_boundary(recipe)
        return found

    def _one_boundary(self, recipe: Recipe) -> None:
        names: Sequence[str] = self.conditions(recipe)
        within = {name: recipe.conditions[name].params.get("within", 4) for name in names}
        if len({*map(str, within.values())}) > 1:
            said = ", ".join(f"{name} {of}" for name, of in within.items())
            raise UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': compares shares of the same "
                f"late failures, and the parameter within differs ({said}); give all the same"
            )
