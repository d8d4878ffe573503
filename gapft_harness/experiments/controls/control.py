"""Experiments that compare conditions of one budget, which differ in their training sets alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.integrity.differences import Differences

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.part import ControlPart


class Control(Experiment, ABC):
    """Which conditions it compares follows from their selectors; the recipe names none.

    Attributes:
        needs: what a recipe must have for it, as the end of a sentence.
        title: of its section in the report.
        axis: what the steps differ in, under the figure; empty: nothing that ascends, and the
            figure shows the parts of every difference instead.
        matched: what ``faults`` holds training sets to, for verify; empty: there is nothing.
    """

    needs: str = ""
    title: str = ""
    axis: str = ""
    matched: str = ""

    @abstractmethod
    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """The conditions that are compared, the reference first; fewer than two: none are."""

    def part(self) -> ControlPart:
        """Its part of the report."""
        from gapft_harness.experiments.controls.part import ControlPart

        return ControlPart(self)

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has fewer than two of its conditions, or two of different n.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}':"
        names = self.conditions(recipe)
        if len(names) < 2:
            there = ", ".join(names) or "none"
            raise UserError(f"{where} needs {self.needs}; found: {there}")
        slots = {name: recipe.slots(name) for name in names}
        if len(set(slots.values())) > 1:
            said = ", ".join(f"{name} {n}" for name, n in slots.items())
            raise UserError(
                f"{where} compares conditions of one budget, and their n differ ({said}); give "
                "all of them the same n, or none"
            )
        self.require_same_settings(recipe, names)
        return found

    def conditions(self, recipe: Recipe) -> Sequence[str]:
        """The conditions of its steps."""
        return [step.condition for step in self.steps(recipe.conditions)]

    def faults(self, run: RunDirectory, arms: Sequence[Arm]) -> Iterable[str]:
        """What sealed training sets differ in that they must have in common; none by default."""
        return ()

    def selected(self, context: Context) -> None:
        """Training sets that are not matched are refused.

        Raises:
            UserError: they are not; the message says in what.
        """
        self.require_same_origins(context)
        for fault in self.faults(context.run, context.arms()):
            raise UserError(f"key 'experiments.{self.name}': {fault}")

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """The training sets are matched as they were."""
        if self.matched:
            found.gather(f"experiments.{self.name}", partial(self.faults, run, trained))
            found.checked.append(self.matched)

    def reads(self, context: Context) -> Iterator[str]:
        """The training sets that are compared."""
        compared = self.conditions(context.run.recipe)
        for arm in context.arms():
            if arm.condition in compared:
                yield layout.selection(arm)
