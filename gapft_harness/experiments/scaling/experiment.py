"""Adapter scaling as an experiment: a stage of its own, further audits, checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.scaling import FIXED, SCALES
from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.check import check_scaled
from gapft_harness.experiments.scaling.job import (
    FOLDER,
    NO_SCALE,
    calibration_file,
    no_scale_warning,
)
from gapft_harness.experiments.scaling.settings import Scaling, scaled
from gapft_harness.experiments.scaling.stage import scale_stage, scaled_audits, scaled_decisions
from gapft_harness.hooks.protocols import Job
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, Split
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import Answered, Decodes, Experiment
from gapft_harness.stages.integrity.differences import Differences

if TYPE_CHECKING:
    from gapft_harness.experiments.scaling.report import ScalingPart


class ScalingExperiment(Experiment):
    """Chooses the scale of each adapter on problems that are in neither pool nor audit."""

    name = "scaling"
    section = Scaling
    renews = True  # another level or tolerance chooses anew from the same decisions
    stage = "scale"
    folder = FOLDER

    def part(self) -> ScalingPart:
        """Its section and tables."""
        from gapft_harness.experiments.scaling.report import ScalingPart

        return ScalingPart()

    def searched(self, context: Context, split: Split, facts: Mapping[str, Any]) -> list[str]:
        """Too few solved calibration problems for any scale above 0 are told at once."""
        settings = scaled(context.run.recipe)
        if split != CALIBRATION or settings is None:
            return []
        hopeless = no_scale_warning(facts["verdicts"].get("pass", 0), settings)
        context.run.update_manifest(partial(_drop_no_scale, but=f"{split}: {hopeless}"))
        return [hopeless] if hopeless else []

    def run(self, context: Context) -> None:
        """Decodes the calibration split at every scale, chooses each arm's, and exports it."""
        scale_stage(context)

    def audits(self, context: Context) -> Iterator[tuple[str, Job]]:
        """The audit at the chosen and at the fixed scale."""
        return scaled_audits(context)

    def reads(self, context: Context) -> Iterator[str]:
        """The decisions at these scales."""
        return (layout.decisions_at(arm, scale) for arm, scale in scaled_decisions(context))

    def answered(self, run: RunDirectory, arm: Arm) -> Iterator[Answered]:
        """The calibration split at every scale, and the audit at those that are compared."""
        for scale in SCALES:
            yield Answered(calibration_file(arm, scale), str(CALIBRATION))
        for scale in sorted({*SCALES, FIXED} - {1.0}):
            yield Answered(layout.decisions_at(arm, scale), "audit")

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """Every scale is chosen again, and every adapter scaled again."""
        settings = scaled(run.recipe)
        if settings is None:
            return
        there = [arm for arm in trained if layout.of_arm(FOLDER, arm) in manifest["files"]]
        for arm in there:
            check = partial(check_scaled, run, arm, settings, manifest)
            found.gather(layout.of_arm(FOLDER, arm), check)
        found.missing += [f"{arm.name} has no scale" for arm in trained if arm not in there]
        if there:
            found.checked.append(
                f"{len(there)} chosen scale{'s' * (len(there) > 1)} computed again from the "
                "calibration split's decisions, and so the scaled weights from the trained ones"
            )

    def plan(self, recipe: Recipe, run_dir: str, adapters: int) -> list[str]:
        """The scale stage."""
        settings = scaled(recipe)
        if settings is None:
            return []
        scales = ", ".join(f"{scale:g}" for scale in SCALES)
        return [
            f"scale   {adapters} adapters x scales {scales}, 1 greedy a calibration problem; the "
            f"largest with bounds up to {settings.tolerance:g}",
            f"        -> {run_dir}/{FOLDER}/",
        ]

    def decodes(self, recipe: Recipe, problems: Mapping[Split, int], adapters: int) -> Decodes:
        """The calibration split at every scale, and the audit at up to two."""
        held, scales = problems[CALIBRATION], len(SCALES)
        count, more = held * (1 + adapters * scales), 2 * problems["audit"] * adapters
        line = (
            f"scale:  {count:,} = {held:,} x (1 + {adapters} adapters x {scales} scales), and up "
            f"to {more:,} of the audit"
        )
        return Decodes([line], count + more, adapters=1)


def _drop_no_scale(manifest: Manifest, but: str) -> None:
    """Of an earlier level and tolerance the warning that no scale can be chosen goes."""
    old = f"{CALIBRATION}: {NO_SCALE}"
    manifest["warnings"] = [w for w in manifest["warnings"] if w == but or not w.startswith(old)]
