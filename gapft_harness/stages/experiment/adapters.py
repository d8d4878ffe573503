"""Experiments on models as they were trained, or at the scales chosen for their adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.report.reading.adapters import tables
from gapft_harness.run_directory import layout
from gapft_harness.stages.context import Context


class OfAdapters(RecipeSection):
    """The settings of an experiment that looks at adapters as trained or as scaled."""

    adapters: Literal["trained", "scaled"] = Field(
        "trained",
        description="`scaled`: the models at the scales that experiments.scaling chose for them",
    )

    def require_scales(self, recipe: Recipe, name: str) -> None:
        """Refuses scaled adapters of a run that scales none.

        Raises:
            UserError: the recipe has no experiment scaling.
        """
        if self.adapters == "scaled" and "scaling" not in recipe.experiments:
            raise UserError(
                f"recipe {recipe.name}: key 'experiments.{name}.adapters': is 'scaled', and the "
                "recipe has no experiments.scaling, which chooses the scales; add it, or leave "
                "adapters out"
            )

    def reads(self, context: Context) -> Iterator[str]:
        """The sealed tables that such an experiment reads of the trained models.

        Raises:
            UserError: a scale is not chosen yet, or its file was changed since.
        """
        if self.adapters == "scaled":
            for arm in context.arms():
                context.run.sealed(layout.of_arm(layout.SCALED, arm))
            yield from tables(context.run.path, context.arms(), self.adapters).values()
