"""The interface of an experiment: settings, steps of a run, and a part of the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from gapft_harness.core.errors import UserError
from gapft_harness.engine.step import Step
from gapft_harness.recipe.messages import build_recipe_error
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.report.part import Part
from gapft_harness.stages.experiment.view import View


class Experiment(Part):
    """Base class of experiments. A method that is not overridden adds nothing to run or report.

    Attributes:
        name: its key in the recipe's section ``experiments``.
        section: the model of its settings, which rejects unknown keys (``api.RecipeSection``);
            None if it has no settings.
    """

    section: type[BaseModel] | None = None

    @property
    def has_steps(self) -> bool:
        """Whether it adds steps to a run."""
        return type(self).steps is not Experiment.steps

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """Return its validated settings in a recipe; None if the recipe does not request it.

        Args:
            recipe: the recipe.
            options: dotted key -> the option of the command line that set it.

        Raises:
            UserError: a key is unknown, missing or wrong; the message names it.
        """
        content = recipe.experiments.get(self.name)
        if content is None:
            return None
        model = self.section or RecipeSection
        try:
            settings = model.model_validate_json(json.dumps(content), strict=True)
        except ValidationError as error:
            prefix = ("experiments", self.name)
            source = f"recipe {recipe.name}"
            raise build_recipe_error(
                error, content, model, source, options or {}, prefix
            ) from error
        self.check(recipe, settings)
        return settings

    def check(self, recipe: Recipe, settings: Any) -> None:
        """Refuse a recipe that does not fit the validated settings.

        Raises:
            UserError: the experiment is impossible with this recipe; see ``recipe_error``.
        """

    def recipe_error(self, recipe: Recipe, message: str) -> UserError:
        """Build the error of a recipe with which the experiment is impossible."""
        return UserError(f"recipe {recipe.name}: key 'experiments.{self.name}': {message}")

    def conditions(self, recipe: Recipe) -> Sequence[str]:
        """Return the conditions that it compares; a report without one of them leaves it out."""
        return ()

    def faults(self, view: View) -> Iterable[str]:
        """Yield a sentence for each reason why the experiment is impossible; the run then stops.

        Called after the search, when ``view.arms()`` is empty, before training, and by
        ``gapft verify``.
        """
        return ()

    def warnings(self, view: View) -> Iterable[str]:
        """Yield warnings to show before training, at the same times as ``faults``."""
        return ()

    def steps(self, view: View) -> Iterator[Sequence[Step]]:
        """Yield lists of steps, built by ``view.step``, ``view.decode`` and ``view.states``.

        The steps of one list run in parallel. Their output is finished before the generator
        continues, so that later steps may use it.
        """
        yield from ()

    def cost(self, recipe: Recipe, counts: Mapping[str, int]) -> Sequence[str]:
        """Describe its work, a line for each kind, before it is known exactly.

        Args:
            recipe: the recipe.
            counts: the number of problems by split, and the number of arms as ``adapters``.
        """
        return ()

    def part(self) -> Part | None:
        """Return its part of the report: itself, or another object with these methods."""
        return self
