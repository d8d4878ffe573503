"""The interface of an experiment: settings, steps of a run, and a section of the report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from gapft_harness.core.errors import UserError
from gapft_harness.engine.step import Step
from gapft_harness.recipe.messages import build_recipe_error
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.stages.experiment.view import View

if TYPE_CHECKING:
    from gapft_harness.core.records import Arm
    from gapft_harness.presentation.content import Table
    from gapft_harness.report.findings.computation import Findings
    from gapft_harness.report.reading.inputs import ReportInputs
    from gapft_harness.run_directory.directory import RunDirectory


class Experiment:
    """Base class of experiments. A method that is not overridden adds nothing to run or report.

    Attributes:
        name: its key in the recipe's section ``experiments``, with which the names of its tables
            begin.
        section: the model of its settings, which rejects unknown keys (``api.RecipeSection``);
            None if it has no settings.
        title: the heading of its section of the report.
        after: the title of the section after which it is inserted; empty: at the end.
    """

    name: str = ""
    title: str = ""
    after: str = ""
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

    # Its section of the report: the same inputs must give the same bytes

    def read(self, run: RunDirectory, arms: Sequence[Arm]) -> Any:
        """Read what the section needs, which the other methods receive; None: there is no section.

        The caller has checked the contents of the run's files.

        Args:
            run: the run, with the recipe of the report.
            arms: the trained arms of the report.
        """
        return None

    def leads(self, read: Any) -> Sequence[str]:
        """Return conditions to put first in the report, after GapFT.

        The first of them is the lead condition of a run without GapFT.
        """
        return ()

    def tables(self, inputs: ReportInputs, findings: Findings, read: Any) -> Iterable[Table]:
        """Return the tables of the section; called only where the run has trained arms."""
        return ()

    def verdicts(self, inputs: ReportInputs, read: Any) -> Mapping[str, Mapping[str, int]]:
        """Return more rows for the table of verdicts: label -> status -> number of responses."""
        return {}
