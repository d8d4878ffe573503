"""The scale stage: every arm's scale, and the adapter at it; nothing without a section scaling."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gapft_harness.protocols import Job
from gapft_harness.recording import record_judging, recorder
from gapft_harness.run_directory import CALIBRATION, splits_of
from gapft_harness.scale import (
    FOLDER,
    audited_scales,
    calibration_file,
    read_choice,
    scaled_file,
)

if TYPE_CHECKING:
    from gapft_harness.pipeline import Context


def scale_stage(context: Context) -> None:
    """Decodes the calibration split at every scale, chooses each arm's, and exports it.

    Raises:
        UserError: nothing is selected or trained yet, the calibration split is not searched, or
            one of its problems is also in the pool or the audit.
    """
    from gapft_harness.pipeline import require_selected
    from gapft_harness.verify_scaling import check_calibration

    run = context.run
    if run.recipe.scaling is None:
        context.say("the recipe has no section scaling: every adapter stays as it was trained")
        return
    require_selected(run)
    run.sealed(f"{CALIBRATION}/responses.parquet")
    for split in splits_of(run.recipe):
        run.sealed(f"{split}/problems.parquet")
    # The search compares the splits of the data as they are; these may be of data at two times.
    check_calibration(run, run.manifest())
    arms = context.arms()
    jobs = [context.arm_job("scale", "gapft_harness.scale:scale_arm", arm) for arm in arms]
    for arm, found in zip(arms, context.executor.run(jobs, context.progress), strict=True):
        for scale, facts in found["decisions"].items():
            file = calibration_file(arm, float(scale))
            run.seal(file)
            name = file.removeprefix("decisions/").removesuffix(".parquet")
            run.update_manifest(partial(record_judging, name=name, facts=facts))
            for warning in facts["warnings"]:
                context.say(f"warning: {name}: {warning}")
        run.seal(f"{FOLDER}/{arm.name}")
        run.update_manifest(recorder("scaling", arm.name, found["choice"]))


def scaled_audits(context: Context) -> Iterator[tuple[str, Job]]:
    """What the audit decodes at other scales than 1: each file with its job.

    Raises:
        UserError: the scale stage has not run.
    """
    if context.run.recipe.scaling is None:
        return
    for arm in context.arms():
        context.run.sealed(f"{FOLDER}/{arm.name}")
        for scale in audited_scales(read_choice(context.run.path, arm)["scale"]):
            verb, function = f"audit, scale {scale:g},", "gapft_harness.scale:audit_scaled_arm"
            yield scaled_file(arm, scale), context.arm_job(verb, function, arm, scale=scale)
