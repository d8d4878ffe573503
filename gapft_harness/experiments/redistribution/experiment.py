"""Answer redistribution as an experiment: refused before training where answers will not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.core.records import Arm
from gapft_harness.experiments.redistribution.settings import RedistributionSettings
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.differences import Differences
from gapft_harness.stages.experiment import Experiment

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
        audited = [arm for arm in trained if layout.decisions(arm) in manifest["files"]]
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


def _why(run: RunDirectory, manifest: Mapping[str, Any], arms: Sequence[Arm]) -> str:
    """Why answers of arms cannot be redistributed, or nothing; raises where the source's cannot."""
    from gapft_harness.report.reading.answers import answers_or_why, read_answers

    read_answers(run.path, manifest["task"], ())
    return answers_or_why(run.path, manifest["task"], arms)[1]
