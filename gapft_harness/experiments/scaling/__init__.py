"""Adapter scaling: use each trained adapter at the scale that calibration allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gapft_harness import api
from gapft_harness.analysis.scaling import SCALES, compute_simultaneous_bounds
from gapft_harness.api import layout
from gapft_harness.experiments.scaling.job import (
    ScalingSettings,
    build_calibration_path,
    list_audited_scales,
    read_chosen_scale,
    scale,
)
from gapft_harness.experiments.scaling.report import ScaledRun, build_tables, read_scaled_run
from gapft_harness.run_directory.directory import CALIBRATION


class ScalingExperiment(api.Experiment):
    """Chooses the scale of every adapter on a calibration split, and evaluates it on the audit."""

    name = "scaling"
    title = "Adapter scaling"
    after = "Where the change comes from"
    section = ScalingSettings

    def warnings(self, view: api.View) -> Iterator[str]:
        """Warn of too few solved calibration problems for any scale above 0."""
        if not view.has(layout.responses_path(CALIBRATION)):
            return
        settings = self.settings(view.recipe)
        solved = view.output(CALIBRATION).facts["verdicts"].get("pass", 0)
        bound = min(compute_simultaneous_bounds([0] * len(SCALES), solved, settings.level))
        if bound > settings.tolerance:
            yield (
                f"the source solves {solved} calibration problems, too few for any scale above 0: "
                f"even without a loss the upper bound is {bound:.1%}, above the tolerance of "
                f"{settings.tolerance:.1%}, so every adapter falls back to the source. Calibrate "
                "on more problems"
            )

    def steps(self, view: api.View) -> Iterator[Sequence[api.Step]]:
        """Decode at every scale, choose the scale, write the adapter, decode the audit."""
        yield [
            view.decode(
                build_calibration_path(arm, scale_value), arm, CALIBRATION, scale=scale_value
            )
            for arm in view.arms()
            for scale_value in SCALES
        ]
        yield [self._build_choice_step(view, arm) for arm in view.arms()]
        yield [
            view.decode(
                layout.scaled_decisions_path(arm, scale_value),
                arm,
                scale=scale_value,
                verb=f"decode the audit at scale {scale_value:g},",
            )
            for arm in view.arms()
            for scale_value in list_audited_scales(read_chosen_scale(view, arm))
        ]

    def _build_choice_step(self, view: api.View, arm: api.Arm) -> api.Step:
        settings = self.settings(view.recipe)
        return view.step(
            layout.arm_path(layout.SCALED, arm),
            scale,
            {
                "problems": layout.problems_path(CALIBRATION),
                "source": layout.responses_path(CALIBRATION),
                "decisions": [build_calibration_path(arm, scale_value) for scale_value in SCALES],
                "adapter": layout.adapter_path(arm),
            },
            {
                "level": settings.level,
                "tolerance": settings.tolerance,
                "condition": arm.condition,
                "seed": arm.seed,
            },
        )

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> Sequence[str]:
        """Count the responses to the calibration split and to the audit."""
        settings = self.settings(recipe)
        adapters = counts["adapters"]
        n_calibration = counts[CALIBRATION]
        count = n_calibration * (1 + adapters * len(SCALES))
        n_audit = 2 * counts["audit"] * adapters
        scales = ", ".join(f"{scale_value:g}" for scale_value in SCALES)
        work = (
            f"{adapters} adapters x scales {scales}, 1 greedy decode of each calibration problem; "
            f"the largest scale with bounds up to {settings.tolerance:g}"
        )
        line = (
            f"scale:  {count:,} = {n_calibration:,} x (1 + {adapters} adapters x {len(SCALES)} "
            f"scales), and up to {n_audit:,} of the audit"
        )
        return [work, line]

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> ScaledRun | None:
        """Read the decisions of the adapters at the compared scales."""
        return read_scaled_run(run, arms)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: ScaledRun
    ) -> list[api.Table]:
        """Build the tables; each condition is an environment, without a common mean."""
        statistics = inputs.recipe["statistics"]
        return build_tables([read], statistics["replicates"], statistics["seed"])

    def verdicts(self, inputs: api.ReportInputs, read: ScaledRun) -> dict[str, Mapping[str, int]]:
        """Count the verdicts on the calibration split, and on the audit at other scales."""
        counts = {"calibration, source": Counter(inputs.verdict_counts[str(CALIBRATION)])}
        for trained in inputs.arms:
            name = trained.arm.condition
            for label, infix in (
                (f"calibration, {name} at every scale", "calibration-"),
                (f"audit, {name} at scales below 1", "scale-"),
            ):
                for file, file_counts in inputs.verdict_counts.items():
                    if file.startswith(f"{trained.arm.name}.{infix}"):
                        counts.setdefault(label, Counter()).update(file_counts)
        return dict(counts)


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register adapter scaling."""
    register("scaling", ScalingExperiment)
