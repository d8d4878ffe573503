"""Adapter scaling: use each trained adapter at the scale that calibration allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gapft_harness import api
from gapft_harness.analysis.scaling import SCALES
from gapft_harness.api import layout
from gapft_harness.experiments.scaling.job import (
    FOLDER,
    Scaling,
    audited_scales,
    calibration_file,
    no_scale_warning,
    scale,
    scaled,
)
from gapft_harness.report.reading.adapters import read_choice

if TYPE_CHECKING:
    from gapft_harness.experiments.scaling.report import ScalingPart


class ScalingExperiment(api.Experiment):
    """Chooses the scale of every adapter on a calibration split, and evaluates it on the audit."""

    name = "scaling"
    section = Scaling

    def part(self) -> ScalingPart:
        """Return the part of the report."""
        from gapft_harness.experiments.scaling.report import ScalingPart

        return ScalingPart()

    def warnings(self, view: api.View) -> Iterator[str]:
        """Warn of too few solved calibration problems for any scale above 0."""
        settings = scaled(view.recipe)
        if settings is not None and view.has(layout.responses(api.CALIBRATION)):
            verdicts = view.manifest()["verdict_counts"][api.CALIBRATION]
            yield from filter(None, [no_scale_warning(verdicts.get("pass", 0), settings)])

    def steps(self, view: api.View) -> Iterator[Mapping[str, api.Step]]:
        """Decode at every scale, choose the scale, write the adapter, decode the audit."""
        yield {
            calibration_file(arm, at): view.decode(arm, api.CALIBRATION, scale=at, verb="decode")
            for arm in view.arms()
            for at in SCALES
        }
        yield {layout.of_arm(FOLDER, arm): self._choose(view, arm) for arm in view.arms()}
        chosen = {}
        for arm in view.arms():
            view.file(layout.of_arm(FOLDER, arm))
            chosen[arm] = read_choice(view.run.path, arm)["scale"]
        yield {
            layout.decisions_at(arm, at): view.decode(
                arm, scale=at, verb=f"decode the audit at scale {at:g},"
            )
            for arm in view.arms()
            for at in audited_scales(chosen[arm])
        }

    def _choose(self, view: api.View, arm: api.Arm) -> api.Step:
        settings = scaled(view.recipe)
        assert settings is not None, "a recipe that asks for it"
        return api.Step(
            scale,
            {
                "problems": layout.problems(api.CALIBRATION),
                "source": layout.responses(api.CALIBRATION),
                "decisions": [calibration_file(arm, at) for at in SCALES],
                "adapter": layout.adapter(arm),
            },
            {
                "level": settings.level,
                "tolerance": settings.tolerance,
                "condition": arm.condition,
                "seed": arm.seed,
            },
            {
                "base_model": view.recipe.model.args["pretrained"],
                "base_revision": view.manifest()["source"].get("revision"),
            },
        )

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> api.Cost:
        """Count the responses to the calibration split and to the audit."""
        settings, scales = scaled(recipe), ", ".join(f"{at:g}" for at in SCALES)
        assert settings is not None, "a recipe that asks for it"
        adapters, held = counts["adapters"], counts[api.CALIBRATION]
        count, more = held * (1 + adapters * len(SCALES)), 2 * counts["audit"] * adapters
        what = (
            f"{adapters} adapters x scales {scales}, 1 greedy decode of each calibration problem; "
            f"the largest scale with bounds up to {settings.tolerance:g}"
        )
        line = (
            f"scale:  {count:,} = {held:,} x (1 + {adapters} adapters x {len(SCALES)} scales), and "
            f"up to {more:,} of the audit"
        )
        return api.Cost({what: FOLDER}, [line], count + more, adapters=1)


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register adapter scaling."""
    register("scaling", ScalingExperiment)
