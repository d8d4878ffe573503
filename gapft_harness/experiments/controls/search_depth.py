"""The search-depth control: conditions of the selector ``search_depth``, by their k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.steps import Step, by_parameter
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.recipe import Recipe

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.part import ControlPart


class SearchDepth(Control):
    """At one budget, what each sample of search adds in place of replay."""

    name = "search_depth"
    needs = (
        "two conditions or more of the selector search_depth, such as depth_0: {selector: "
        "search_depth, params: {k: 0}} and depth_8: {selector: search_depth, params: {k: 8}}"
    )

    title = "Search depth"
    axis = "samples that search may use"

    def part(self) -> ControlPart:
        """Its section, figure and table."""
        from gapft_harness.experiments.controls.reports.depth import DepthPart

        return DepthPart(self)

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """By ascending k."""
        return by_parameter(conditions, self.name, "k", lambda k: f"K = {k}")

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Control.settings``; a k beyond the samples of the search is refused as well."""
        found = super().settings(recipe, options)
        for step in self.steps(recipe.conditions) if found is not None else ():
            if step.value is not None and step.value > recipe.search.k:
                raise UserError(
                    f"recipe {recipe.name}: key 'conditions.{step.condition}.params.k': is "
                    f"{step.value}, and search.k draws {recipe.search.k} samples; expected no more"
                )
        return found
