"""Answer redistribution as an experiment: refused before training where answers will not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.core.records import Arm
from gapft_harness.experiments.redistribution.settings import RedistributionSettings
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.report.reading.adapters import tables
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.differences import Differences
from gapft_harness.stages.experiment import Experiment
from gapft_harness.stages.experiment.adapters import decided_tables, require_scales

if TYPE_CHECKING:
    from gapft_harness.experiments.redistribution.report import RedistributionPart


class RedistributionExperiment(Experiment):
    """Whether corrections are tied to their problems, or answer frequencies would do."""

    name = "redistribution"
    section = RedistributionSettings

    def part(self) -> RedistributionPart:
        """Its section and table."""
        from gapft_harness.experiments.redistribution.report import RedistributionPart

        return RedistributionPart()

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """As of every experiment; scaled adapters of a run that scales none are refused."""
        found = super().settings(recipe, options)
        require_scales(recipe, self.name, found)
        return found

    def reads(self, context: Context) -> Iterator[str]:
        """The decisions of scaled adapters; those of the others every report reads."""
        return decided_tables(context, self.settings(context.run.recipe))

    def selected(self, context: Context) -> None:
        """Answers that cannot be redistributed are refused before anything is trained."""
        from gapft_harness.report.reading.answers import read_answers

        run = context.run
        run.sealed(layout.responses("audit"))
        read_answers(run.path, run.manifest()["task"], ())

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """Every greedy answer is the gold one exactly where its verdict passes.

        Where this fails for an arm, nothing is amiss: the report has no rates and says why.
        """
        adapters = self.settings(run.recipe).adapters
        files = manifest["files"]
        if adapters == "scaled":
            trained = [arm for arm in trained if layout.of_arm(layout.SCALED, arm) in files]
        there = found.attempt(layout.SCALED, partial(tables, run.path, trained, adapters))
        if there is None:
            return
        audited = {arm: table for arm, table in there.items() if table in files}
        why = found.attempt(layout.DECISIONS, partial(_why, run, manifest, audited))
        if why is not None:
            found.checked.append(
                f"{self.name}: "
                + (
                    f"no rates, as the report says: {why}"
                    if why
                    else f"the answers of the source and of {len(audited)} arms are right exactly "
                    "where they are the gold ones"
                )
            )


def _why(run: RunDirectory, manifest: Mapping[str, Any], arms: Mapping[Arm, str]) -> str:
    """Why answers of arms cannot be redistributed, or nothing; raises where the source's cannot."""
    from gapft_harness.report.reading.answers import answers_or_why, read_answers

    read_answers(run.path, manifest["task"], ())
    return answers_or_why(run.path, manifest["task"], arms)[1]
