"""The three panels of Table 2: search depth, randomized inclusion, gold labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness import api
from gapft_harness.experiments.controls.control import (
    Control,
    Pair,
    PermutationSettings,
    list_with_gapft,
    order_by_parameter,
)


class SearchDepth(Control):
    """Measures what each sample of the search adds in place of replay (Table 2, panel A)."""

    name = "search_depth"
    section: type[PermutationSettings] = PermutationSettings
    title = "Search depth"
    requirement = (
        "two conditions or more of the selector search_depth, such as depth_0: {selector: "
        "search_depth, params: {k: 0}} and depth_8: {selector: search_depth, params: {k: 8}}"
    )
    parameter = "k"
    shows_gain_share = True

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the conditions by ascending k."""
        return order_by_parameter(conditions, "search_depth", "k")

    def check(self, recipe: api.Recipe, settings: Any) -> None:
        """Require, beyond ``Control.check``, no k above the number of samples of the search."""
        super().check(recipe, settings)
        for name in self.conditions(recipe):
            k = recipe.conditions[name].params.get("k", 0)
            if k > recipe.search.k:
                raise api.UserError(
                    f"recipe {recipe.name}: key 'conditions.{name}.params.k': {k}: expected at "
                    f"most search.k, {recipe.search.k} samples"
                )


class RandomizedInclusion(Control):
    """Measures the value of failures that only deep search recovers (Table 2, panel B)."""

    name = "randomized_inclusion"
    section = PermutationSettings
    title = "Randomized inclusion"
    requirement = (
        "two conditions or more of the selector randomized_inclusion, such as late_0: {selector: "
        "randomized_inclusion, params: {share: 0}} and late_100: {selector: randomized_inclusion, "
        "params: {share: 1}}"
    )
    parameter = "share"

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the conditions by ascending share."""
        return order_by_parameter(conditions, self.name, "share")

    def check(self, recipe: api.Recipe, settings: Any) -> None:
        """Require, beyond ``Control.check``, the same parameter ``within``."""
        super().check(recipe, settings)
        names = self.conditions(recipe)
        within = {name: recipe.conditions[name].params.get("within", 4) for name in names}
        self.require_same(recipe, within, "parameter within")


class GoldLabels(Control):
    """Compares failures selected by gold answers with GapFT, on the same targets (Table 2, C)."""

    name = "gold_labels"
    section = PermutationSettings
    title = "Gold-label selection"
    requirement = (
        "a condition of the selector gapft and one of gold_labels, such as gapft: {} and gold: "
        "{selector: gold_labels}"
    )

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return GapFT, then the selections by gold answers; none without GapFT."""
        return list_with_gapft(conditions, self.name)

    def find_gold_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return each selection by gold answers with GapFT."""
        return self.find_pairs(conditions)
