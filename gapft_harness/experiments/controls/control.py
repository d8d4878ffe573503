"""Controls: compare conditions that have one budget and different training sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.experiments.controls.gold import compare_training_sets, count_kept_slots

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.part import ControlPart


class PermutationSettings(api.RecipeSection):
    """The settings of a control with permutation tests."""

    permutations: int = Field(
        2000, gt=0, description="permutations of the paired test of each contrast"
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two compared conditions: ``condition`` minus ``against``."""

    condition: str
    against: str


class Control(api.Experiment, ABC):
    """An experiment that compares conditions, which it finds by their selectors.

    Attributes:
        section: ``PermutationSettings`` if the pairs are tested by permutation.
        title: the title of its section in the report.
        requirement: the conditions that a recipe must have; follows "needs" in a message.
        parameter: the parameter of the selector in which the conditions differ; empty: none.
        shows_gain_share: whether differences are also shown as shares of the last one.
    """

    title: str = ""
    requirement: str = ""
    parameter: str = ""
    shows_gain_share: bool = False

    @abstractmethod
    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the conditions with one budget, the reference first; at least two are needed."""

    def find_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return the pairs to compare: each later condition with the reference."""
        first, *others = self.find_conditions(conditions)
        return [Pair(name, first) for name in others]

    def find_gold_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return pairs whose targets must be the same: gold labels, and the search they follow."""
        return ()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has fewer than two of the conditions, or their n differs.
        """
        settings = super().settings(recipe, options)
        if settings is None:
            return None
        names = self.conditions(recipe)
        if len(names) < 2:
            found_names = ", ".join(names) or "none"
            raise self.recipe_error(recipe, f"needs {self.requirement}; found: {found_names}")
        slots = {name: recipe.find_slots(name) for name in names}
        if len(set(slots.values())) > 1:
            slot_texts = ", ".join(f"{name} {n}" for name, n in slots.items())
            raise self.recipe_error(
                recipe,
                f"expected the same n in all compared conditions, found {slot_texts}; set n to the "
                "same value in all of them, or in none",
            )
        api.require_same_settings(recipe, self.name, names)
        return settings

    def recipe_error(self, recipe: api.Recipe, message: str) -> api.UserError:
        """Build the error of a recipe with which the control is impossible."""
        return api.UserError(f"recipe {recipe.name}: key 'experiments.{self.name}': {message}")

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the conditions with one budget, the reference first."""
        return self.find_conditions(recipe.conditions)

    def faults(self, view: api.View) -> Iterator[str]:
        """Report gold labels whose training set does not match that of the search."""
        for search, gold in self._list_gold_arms(view):
            yield from compare_training_sets(view.run, search, gold)

    def warnings(self, view: api.View) -> Iterator[str]:
        """Report how many slots gold labels keep from the search."""
        for search, gold in self._list_gold_arms(view):
            count = count_kept_slots(view.run.path, view.recipe.conditions, search, gold)
            if count:
                yield (
                    f"{gold.name}: {count:,} slots keep the example of {search.name}, because its "
                    "target contains more than the answer"
                )

    def part(self) -> ControlPart:
        """Return the part of the report."""
        from gapft_harness.experiments.controls.part import ControlPart

        return ControlPart(self)

    def _list_gold_arms(self, view: api.View) -> Iterator[tuple[api.Arm, api.Arm]]:
        """Yield the arms of each gold pair and seed: the search, then gold labels."""
        arms = view.arms()
        for pair in self.find_gold_pairs(view.recipe.conditions):
            for arm in arms:
                search = api.Arm(pair.against, arm.seed)
                if arm.condition == pair.condition and search in arms:
                    yield search, arm


def list_selected(conditions: Mapping[str, api.Condition], selector: str) -> list[str]:
    """List the conditions of a selector, without replicates."""
    return [
        name
        for name, condition in conditions.items()
        if condition.selector == selector and not condition.replicate
    ]


def order_by_parameter(
    conditions: Mapping[str, api.Condition], selector: str, parameter: str
) -> list[str]:
    """List the conditions of a selector, ascending by a parameter.

    Values that are not numbers are left out; the selector reports them.
    """
    values = {
        name: conditions[name].params.get(parameter) for name in list_selected(conditions, selector)
    }
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return sorted(numbers, key=numbers.__getitem__)


def list_with_gapft(conditions: Mapping[str, api.Condition], selector: str) -> list[str]:
    """List the first GapFT condition, then those of a selector; empty without GapFT."""
    gapft = list_selected(conditions, "gapft")[:1]
    return [*gapft, *list_selected(conditions, selector)] if gapft else []
