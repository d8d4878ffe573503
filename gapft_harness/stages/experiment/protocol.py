"""What an experiment is: settings, steps that it adds to a run, and a part of the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from gapft_harness.recipe.faults import explain
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.stages.experiment.steps import Step, View

if TYPE_CHECKING:
    from gapft_harness.report.part import Part


@dataclass(frozen=True, slots=True)
class Cost:
    """What an experiment will take, for the dry run.

    Attributes:
        work: a sentence on each kind of step, with the folder that it fills.
        decodes: what it generates, a sentence each.
        responses: how many at most.
        adapters: further adapters that it keeps for each trained one.
    """

    work: Mapping[str, str] = field(default_factory=dict)
    decodes: Sequence[str] = ()
    responses: int = 0
    adapters: int = 0


class Experiment:
    """What an experiment adds to a run. Every method adds nothing unless it is overridden.

    Attributes:
        name: its key in the recipe's section ``experiments``.
        section: the model of its settings, which refuses unknown keys (``api.RecipeSection``);
            None: it has no settings.
    """

    name: str = ""
    section: type[BaseModel] | None = None

    @property
    def has_steps(self) -> bool:
        """Whether it adds steps to a run."""
        return type(self).steps is not Experiment.steps

    @property
    def has_faults(self) -> bool:
        """Whether it asks something of a run before training."""
        return type(self).faults is not Experiment.faults

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """Return its settings in a recipe, validated; None if the recipe does not ask for it.

        Args:
            recipe: the recipe.
            options: dotted key -> the option of the command line that set it.

        Raises:
            UserError: a key is unknown, missing or wrong; the message names it.
        """
        given = recipe.experiments.get(self.name)
        if given is None:
            return None
        model = self.section or RecipeSection
        try:
            return model.model_validate(given)
        except ValidationError as error:
            under, source = ("experiments", self.name), f"recipe {recipe.name}"
            raise explain(error, given, model, source, options or {}, under) from error

    def conditions(self, recipe: Recipe) -> Sequence[str]:
        """Return the conditions that it compares; a report without one of them omits it."""
        return ()

    def faults(self, view: View) -> Iterable[str]:
        """Yield what makes the experiment impossible, a sentence each; the run stops.

        Asked after the search, when ``view.arms()`` is empty, and before training; ``gapft verify``
        asks again.
        """
        return ()

    def warnings(self, view: View) -> Iterable[str]:
        """Yield what people should know before training, at the same times as ``faults``."""
        return ()

    def steps(self, view: View) -> Iterator[Mapping[str, Step]]:
        """Yield its steps, by the file or folder of the run that each makes.

        The steps of one mapping run at once. What they made is sealed when the generator goes on,
        so that later steps may depend on it.
        """
        yield from ()

    def cost(self, recipe: Recipe, counts: Mapping[str, int]) -> Cost:
        """Return what it will take.

        Args:
            recipe: the recipe.
            counts: by split the number of its problems, and ``adapters``, the number of arms.
        """
        return Cost()

    def part(self) -> Part | None:
        """Return its part of the report."""
        return None
