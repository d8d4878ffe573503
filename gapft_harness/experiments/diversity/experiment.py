"""The matched-diversity control as an experiment: what is compared, and that it is matched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.diversity.matching import Compared, compared, read_matching
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.differences import Differences
from gapft_harness.stages.experiment.protocol import Experiment

if TYPE_CHECKING:
    from gapft_harness.experiments.diversity.report import DiversityPart


class MatchedDiversity(Experiment):
    """Conditions of one n: problems of GapFT's strata, to one, and tokens to a tolerance.

    Which are compared follows from their selectors: ``gapft``, which the others are matched to,
    ``matched_strata`` and ``repeated``.
    """

    name = "matched_diversity"

    def part(self) -> DiversityPart:
        """Its section, figure and table."""
        from gapft_harness.experiments.diversity.report import DiversityPart

        return DiversityPart()

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Experiment.settings``.

        Raises:
            UserError: the recipe has too few of its conditions, they are not of one n or of the
                same strata, one has a parameter that cannot be, or nothing says by how much
                supervised tokens may differ.
        """
        found = super().settings(recipe, options)
        if found is None:
            return None
        where = f"recipe {recipe.name}: key 'experiments.{self.name}':"
        try:
            of = compared(recipe.conditions)
        except UserError as error:
            raise UserError(f"recipe {recipe.name}: {error}") from error
        if of is None:
            raise UserError(
                f"{where} needs a condition of the selector gapft and one or more of "
                "matched_strata, such as gapft: {} and solved: {selector: matched_strata, params: "
                f"{{states: G, by: [subject, level]}}}}; found: {', '.join(recipe.conditions)}"
            )
        for what, each in (
            ("n", {name: recipe.slots(name) for name in of.names}),
            ("fields in by", {name: list(by) for name, by in of.by.items()}),
        ):
            if len({*map(str, each.values())}) > 1:
                said = ", ".join(f"{name} {value}" for name, value in each.items())
                raise UserError(
                    f"{where} compares conditions of the same {what}, and theirs differ ({said})"
                )
        if recipe.budget.token_tolerance is None:
            raise UserError(
                f"{where} compares conditions of nearly as many supervised tokens, and "
                "budget.token_tolerance is not set; set it, to 0.02 as the paper does"
            )
        self.require_same_settings(recipe, of.names)
        return found

    def conditions(self, recipe: Recipe) -> Sequence[str]:
        """Those that are compared, GapFT first."""
        return self._of(recipe).names

    def reads(self, context: Context) -> Iterator[str]:
        """The training sets that are compared, and the pool's records."""
        yield layout.problems("pool")
        names = self.conditions(context.run.recipe)
        yield from (layout.selection(arm) for arm in context.arms() if arm.condition in names)

    def selected(self, context: Context) -> None:
        """Training sets of other strata than GapFT's are refused.

        Raises:
            UserError: a stratum differs by more than one problem; the message names it.
        """
        self.require_same_origins(context)
        for _, faults in self._faults(context.run, context.arms()):
            for fault in faults:
                raise UserError(f"key 'experiments.{self.name}': {fault}")

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """The sealed training sets have GapFT's strata."""
        matched = [*self._faults(run, trained)]
        for arm, faults in matched:
            found.gather(layout.selection(arm), partial(list, faults))
        if matched and self._of(run.recipe).fields:
            found.checked.append(
                f"the strata of {len(matched)} training sets differ from GapFT's by one problem at "
                "most"
            )

    def _faults(
        self, run: RunDirectory, arms: Sequence[Arm]
    ) -> Iterator[tuple[Arm, Sequence[str]]]:
        of = self._of(run.recipe)
        for arm, strata in read_matching(run.path, of, arms).items():
            yield arm, [*strata.faults(arm.name)]

    @staticmethod
    def _of(recipe: Recipe) -> Compared:
        found = compared(recipe.conditions)
        assert found is not None, "a recipe whose settings were checked"
        return found
