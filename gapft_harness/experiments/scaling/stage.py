"""The scale stage: every arm's scale, and the adapter at it; nothing if none is asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.scaling.job import (
    FOLDER,
    audit_scaled_arm,
    audited_scales,
    calibration_file,
    is_stale,
    scale_arm,
)
from gapft_harness.experiments.scaling.settings import scaled
from gapft_harness.hooks.protocols import Job
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, splits_of
from gapft_harness.run_directory.recording import record_judging, recorder
from gapft_harness.stages.integrity.disjoint import require_apart

if TYPE_CHECKING:
    from gapft_harness.stages.context import Context


def scale_stage(context: Context) -> None:
    """Decodes the calibration split at every scale, chooses each arm's, and exports it.

    What was chosen at another level or tolerance is chosen anew, from the same decisions.

    Raises:
        UserError: nothing is selected or trained yet, the calibration split is not searched, or
            one of its problems is also in the pool or the audit.
    """
    from gapft_harness.stages.context import require_selected

    run = context.run
    if scaled(run.recipe) is None:
        context.say("the recipe has no experiments.scaling: every adapter stays as it was trained")
        return
    require_selected(run)
    run.sealed(layout.responses(CALIBRATION))
    for split in splits_of(run.recipe):
        run.sealed(layout.problems(split))
    require_apart(run, splits_of(run.recipe))
    arms = context.arms()
    run.unseal(layout.of_arm(FOLDER, arm) for arm in arms if is_stale(run, arm))
    jobs = [context.arm_job("scale", scale_arm, arm) for arm in arms]
    for arm, found in zip(arms, context.executor.run(jobs, context.progress), strict=True):
        for scale, facts in found["decisions"].items():
            file = calibration_file(arm, float(scale))
            run.seal(file)
            name = layout.name_of(file)
            run.update_manifest(partial(record_judging, name=name, facts=facts))
            for warning in facts["warnings"]:
                context.say(f"warning: {name}: {warning}")
        run.seal(layout.of_arm(FOLDER, arm))
        run.update_manifest(recorder("scaling", arm.name, found["choice"]))


def scaled_audits(context: Context) -> Iterator[tuple[str, Job]]:
    """What the audit decodes at other scales than 1: each file with its job.

    Raises:
        UserError: see ``scaled_decisions``.
    """
    for arm, scale in scaled_decisions(context):
        verb, function = f"audit, scale {scale:g},", partial(audit_scaled_arm, scale=scale)
        yield layout.decisions_at(arm, scale), context.arm_job(verb, function, arm)


def scaled_decisions(context: Context) -> Iterator[tuple[Arm, float]]:
    """Each arm with each scale other than 1 at which the audit is decoded.

    Raises:
        UserError: the scale stage has not run, or chose at another level or tolerance.
    """
    if scaled(context.run.recipe) is None:
        return
    for arm in context.arms():
        folder = context.run.sealed(layout.of_arm(FOLDER, arm))
        if is_stale(context.run, arm):
            raise UserError(
                f"{folder}: its scale was chosen at another level or tolerance than the recipe's "
                "experiments.scaling has now; gapft run --only scale chooses anew"
            )
        for scale in audited_scales(read_choice(context.run.path, arm)["scale"]):
            yield arm, scale
