"""Coverage against repetition: which problems the same responses are spent on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness import api
from gapft_harness.api import layout
from gapft_harness.experiments.allocation.halves import (
    Allocation,
    compared,
    exposed_arm,
    exposed_file,
    read_halves,
    stale_exposed,
)

if TYPE_CHECKING:
    from gapft_harness.experiments.allocation.report import AllocationPart


class AllocationExperiment(api.Experiment):
    """Coverage against repetition on the problems that two conditions train on."""

    name = "allocation"
    section = Allocation
    renews = True  # decisions on halves that stay are kept; others are `stale`

    def part(self) -> AllocationPart:
        """Its section, figure and tables."""
        from gapft_harness.experiments.allocation.report import AllocationPart

        return AllocationPart()

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """As of every experiment.

        Raises:
            UserError: conditions that are not there, are one, differ in more than their sets, or
                have an odd n.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.allocation"
        names = {"diffuse": found.diffuse, "concentrated": found.concentrated}
        for key, name in names.items():
            if name not in recipe.conditions:
                known = ", ".join(recipe.conditions)
                raise api.UserError(f"{where}.{key}': {name!r} is none of the conditions {known}")
            n = recipe.slots(name)
            if isinstance(n, int) and n % 2:
                raise api.UserError(f"{where}': splits budget.n into two halves, and {n} is odd")
        if found.diffuse == found.concentrated:
            raise api.UserError(f"{where}': compares {found.diffuse!r} with itself")
        self.require_same_settings(recipe, [*names.values()])
        return found

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """The two that are compared."""
        allocation = compared(recipe)
        return (allocation.diffuse, allocation.concentrated) if allocation else ()

    def selected(self, context: api.Context) -> None:
        """Selections that are no such comparison are refused before anything is trained."""
        allocation = compared(context.run.recipe)
        if allocation is not None and context.arms():
            self.require_same_origins(context)
            for seed in context.run.recipe.seeds:
                read_halves(context.run, allocation, seed)

    def stale(self, context: api.Context) -> list[str]:
        """Decisions on other halves than the arms have now."""
        return stale_exposed(context.run, self._arms(context))

    def audits(self, context: api.Context) -> Iterator[tuple[str, api.Job]]:
        """Both conditions decode what either trained on."""
        for arm in self._arms(context):
            yield (
                exposed_file(arm),
                context.arm_job("decode trained problems,", exposed_arm, arm),
            )

    def reads(self, context: api.Context) -> Iterator[str]:
        """Selections and the decisions on them."""
        for arm in self._arms(context):
            yield layout.selection(arm)
            yield exposed_file(arm)

    def answered(self, run: api.RunDirectory, arm: api.Arm) -> Iterator[api.Answered]:
        """The decisions answer the halves of their seed."""
        allocation = compared(run.recipe)
        ids = None
        if allocation is not None:
            ids = partial(_problems, run, allocation, arm.seed)
        yield api.Answered(exposed_file(arm), "pool", ids, "the halves of its seed" if ids else "")

    def decodes(
        self, recipe: api.Recipe, problems: Mapping[api.Split, int], adapters: int
    ) -> api.Decodes:
        """Each of the compared adapters decodes both halves."""
        adapters = 2 * len(recipe.seeds)
        line = f"halves: of up to n problems x {adapters} adapters"
        return api.Decodes([line], problems["pool"] * adapters)

    def _arms(self, context: api.Context) -> list[api.Arm]:
        names = self.conditions(context.run.recipe)
        return [arm for arm in context.arms() if arm.condition in names]


def _problems(run: api.RunDirectory, allocation: Allocation, seed: int) -> tuple[str, ...]:
    return read_halves(run, allocation, seed).problems


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the comparison."""
    register("allocation", AllocationExperiment)
