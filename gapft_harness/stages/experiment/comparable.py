"""What several experiments ask of a recipe: its conditions, one K and training, scaled adapters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.recipe.conditions import own_settings
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.manifest import taken_sets
from gapft_harness.stages.experiment.steps import View


class OfAdapters(RecipeSection):
    """The settings of an experiment that looks at adapters as trained or as scaled."""

    adapters: Literal["trained", "scaled"] = Field(
        "trained",
        description="`scaled`: the models at the scales that experiments.scaling chose for them",
    )

    def require_scales(self, recipe: Recipe, name: str) -> None:
        """Refuse scaled adapters of a run that scales none.

        Args:
            recipe: the recipe.
            name: of the experiment.

        Raises:
            UserError: the recipe has no experiment scaling.
        """
        if self.adapters == "scaled" and "scaling" not in recipe.experiments:
            raise UserError(
                f"recipe {recipe.name}: key 'experiments.{name}.adapters': is 'scaled', and the "
                "recipe has no experiments.scaling, which chooses the scales; add it, or leave "
                "adapters out"
            )


def require_conditions(recipe: Recipe, key: str, names: Iterable[str]) -> None:
    """Refuse names under a key that are not conditions of the recipe.

    Args:
        recipe: the recipe.
        key: such as ``experiments.online.reference``.
        names: what it has.

    Raises:
        UserError: a name is not a condition.
    """
    for name in names:
        if name not in recipe.conditions:
            raise UserError(
                f"recipe {recipe.name}: key '{key}': {name!r} is no condition of the recipe; "
                f"{did_you_mean(name, recipe.conditions)}"
            )


def require_same_settings(recipe: Recipe, name: str, conditions: Sequence[str]) -> None:
    """Refuse conditions that differ in more than their training sets, by what a recipe says.

    Args:
        recipe: the recipe.
        name: of the experiment.
        conditions: those that it compares.

    Raises:
        UserError: one has another K or training; the message names the keys.
    """
    for fault in _find_own_settings(recipe, name, conditions, {}):
        raise UserError(f"recipe {recipe.name}: {fault}")


def find_own_settings(view: View, name: str, conditions: Sequence[str]) -> Iterator[str]:
    """Yield a fault for conditions that differ in more than their training sets.

    Also where another run chose the sets, by its K and replay.

    Args:
        view: the run, after the selection.
        name: of the experiment.
        conditions: those that it compares.
    """
    yield from _find_own_settings(view.recipe, name, conditions, taken_sets(view.manifest()))


def _find_own_settings(
    recipe: Recipe,
    name: str,
    conditions: Sequence[str],
    taken: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    own = own_settings(recipe.model_dump(mode="json"), taken)
    for other in conditions:
        if differing := differences(own[conditions[0]], own[other]):
            yield (
                f"the experiment {name} compares conditions that differ in their training sets "
                f"alone, and {conditions[0]!r} and {other!r} have settings of their own: "
                f"{'; '.join(differing)}. Give both the same, or leave the experiment out: "
                "the report's contrasts compare them, marked"
            )


def find_no_backend(view: View, name: str) -> Iterator[str]:
    """Yield a fault if the recipe's backend replays responses and cannot generate others.

    Args:
        view: the run.
        name: of the experiment.
    """
    if not view.generates():
        backend = view.recipe.model.backend
        yield (
            f"needs a backend that generates: {backend!r} has the responses of each arm's own "
            "adapter, and no others"
        )
