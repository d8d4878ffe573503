"""Adapter scaling: one trained adapter at the scale that calibration allows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness import api
from gapft_harness.analysis.scaling import FIXED, SCALES
from gapft_harness.api import layout
from gapft_harness.experiments.scaling.job import (
    FOLDER,
    NO_SCALE,
    Scaling,
    audit_scaled_arm,
    audited_scales,
    calibration_file,
    choose,
    is_stale,
    no_scale_warning,
    scale_arm,
    scaled,
)
from gapft_harness.report.reading.adapters import read_choice
from gapft_harness.run_directory.directory import splits_of
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.recording import record_judging, recorder
from gapft_harness.stages.integrity.disjoint import require_apart

if TYPE_CHECKING:
    from gapft_harness.experiments.scaling.report import ScalingPart


def scaled_decisions(context: api.Context) -> Iterator[tuple[api.Arm, float]]:
    """Each arm with each scale other than 1 at which the audit is decoded.

    Raises:
        UserError: the scale stage has not run, or chose at another level or tolerance.
    """
    if scaled(context.run.recipe) is None:
        return
    for arm in context.arms():
        folder = context.run.sealed(layout.of_arm(FOLDER, arm))
        if is_stale(context.run, arm):
            raise api.UserError(
                f"{folder}: its scale was chosen at another level or tolerance than the recipe's "
                "experiments.scaling has now; gapft run --only scale chooses anew"
            )
        for scale in audited_scales(read_choice(context.run.path, arm)["scale"]):
            yield arm, scale


def check_scaled(
    run: api.RunDirectory, arm: api.Arm, settings: Scaling, manifest: Mapping[str, Any]
) -> Iterable[str]:
    """Chooses one arm's scale again from the sealed decisions, and scales its adapter again."""
    where, trained = layout.of_arm(FOLDER, arm), layout.adapter(arm)
    recorded = read_choice(run.path, arm)
    choice = choose(run, arm, settings)
    plain = asdict(choice) | {"scales": [asdict(at) for at in choice.scales]}
    expected = plain | {"condition": arm.condition, "seed": arm.seed}
    with tempfile.TemporaryDirectory() as folder:
        hashes = {
            scale: _hash_at(run.path / trained, Path(folder) / f"{scale:g}", scale)
            for scale in (0.0, *SCALES)
        }
    exported = api.weights_hash(run.path / where)
    if exported != hashes[choice.scale]:
        yield f"{where}: is not {trained} at scale {choice.scale:g}"
    configs = [run.path / folder / "adapter_config.json" for folder in (trained, where)]
    if configs[0].read_bytes() != configs[1].read_bytes():
        yield f"{where}/adapter_config.json: is not that of {trained}"
    expected["adapter_sha256"] = exported
    yield from api.unequal(f"{where}/scaling.json", recorded, expected)
    if of_manifest := manifest.get("scaling", {}).get(arm.name):
        yield from api.unequal(f"{where}/scaling.json", recorded, of_manifest, "the manifest has")
    else:
        yield f"manifest.json: holds no scaling of {arm.name}"
    right = {**hashes, 1.0: api.weights_hash(run.path / trained)}
    audited = {layout.decisions_at(arm, scale): scale for scale in audited_scales(choice.scale)}
    if (run.path / layout.decisions(arm)).exists():
        yield from _check_audited(run, audited)
    files = {calibration_file(arm, scale): scale for scale in SCALES} | audited
    used = {
        file: (read_facts(run.path / file).get("adapter") or {}).get("weights_sha256")
        for file in files
        if (run.path / file).exists()
    }
    # a sampler may say nothing of its adapter, but not of some decodes alone
    for file, found in used.items():
        if any(used.values()) and found != right[files[file]]:
            yield (
                f"{file}: was decoded with another adapter than {arm.name} at scale "
                f"{files[file]:g}, or with none"
            )


def _check_audited(run: api.RunDirectory, audited: Iterable[str]) -> Iterable[str]:
    """An audit that is done has decided every audit problem at every scale that is compared."""
    problems = api.read_columns(run.path / layout.problems("audit"), ("problem_id",))
    for file in audited:
        if not (run.path / file).exists():
            yield f"{file}: is missing, and the audit is done"
        elif api.read_columns(run.path / file, ("problem_id",)) != problems:
            yield f"{file}: holds other problems than the audit"


def _hash_at(folder: Path, output: Path, scale: float) -> str:
    from gapft_harness.training.adapter import scale_adapter

    scale_adapter(folder, output, scale, {})
    return api.weights_hash(output)


class ScalingExperiment(api.Experiment):
    """Chooses every adapter's scale on a calibration split, and compares it on the audit."""

    name = "scaling"
    section = Scaling
    renews = True  # another level or tolerance chooses anew from the same decisions
    stage = "scale"
    folder = FOLDER

    def part(self) -> ScalingPart:
        """Its section and tables."""
        from gapft_harness.experiments.scaling.report import ScalingPart

        return ScalingPart()

    def searched(
        self, context: api.Context, split: api.Split, facts: Mapping[str, Any]
    ) -> list[str]:
        """Too few solved calibration problems for any scale above 0 are told at once."""
        settings = scaled(context.run.recipe)
        if split != api.CALIBRATION or settings is None:
            return []
        hopeless = no_scale_warning(facts["verdicts"].get("pass", 0), settings)
        context.run.update_manifest(partial(_drop_no_scale, but=f"{split}: {hopeless}"))
        return [hopeless] if hopeless else []

    def run(self, context: api.Context) -> None:
        """Decodes the calibration split at every scale, chooses each arm's, and exports it.

        What was chosen at another level or tolerance is chosen anew, from the same decisions.

        Raises:
            UserError: nothing is selected or trained yet, the calibration split is not searched, or
                one of its problems is also in the pool or the audit.
        """
        from gapft_harness.stages.context import require_selected

        run = context.run
        if scaled(run.recipe) is None:
            context.say(
                "the recipe has no experiments.scaling: every adapter stays as it was trained"
            )
            return
        require_selected(run)
        run.sealed(layout.responses(api.CALIBRATION))
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
                context.warn(facts["warnings"], name)
            run.seal(layout.of_arm(FOLDER, arm))
            run.update_manifest(recorder("scaling", arm.name, found["choice"]))

    def audits(self, context: api.Context) -> Iterator[tuple[str, api.Job]]:
        """What the audit decodes at other scales than 1: each file with its job.

        Raises:
            UserError: see ``scaled_decisions``.
        """
        for arm, scale in scaled_decisions(context):
            verb, function = f"audit, scale {scale:g},", partial(audit_scaled_arm, scale=scale)
            yield layout.decisions_at(arm, scale), context.arm_job(verb, function, arm)

    def reads(self, context: api.Context) -> Iterator[str]:
        """The decisions at these scales."""
        return (layout.decisions_at(arm, scale) for arm, scale in scaled_decisions(context))

    def answered(self, run: api.RunDirectory, arm: api.Arm) -> Iterator[api.Answered]:
        """The calibration split at every scale, and the audit at those that are compared."""
        for scale in SCALES:
            yield api.Answered(calibration_file(arm, scale), str(api.CALIBRATION))
        for scale in sorted({*SCALES, FIXED} - {1.0}):
            yield api.Answered(layout.decisions_at(arm, scale), "audit")

    def check(
        self,
        run: api.RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[api.Arm],
        found: api.Differences,
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

    def plan(self, recipe: api.Recipe, run_dir: str, adapters: int) -> list[str]:
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

    def decodes(
        self, recipe: api.Recipe, problems: Mapping[api.Split, int], adapters: int
    ) -> api.Decodes:
        """The calibration split at every scale, and the audit at up to two."""
        held, scales = problems[api.CALIBRATION], len(SCALES)
        count, more = held * (1 + adapters * scales), 2 * problems["audit"] * adapters
        line = (
            f"scale:  {count:,} = {held:,} x (1 + {adapters} adapters x {scales} scales), and up "
            f"to {more:,} of the audit"
        )
        return api.Decodes([line], count + more, adapters=1)


def _drop_no_scale(manifest: Manifest, but: str) -> None:
    """Of an earlier level and tolerance the warning that no scale can be chosen goes."""
    old = f"{api.CALIBRATION}: {NO_SCALE}"
    manifest["warnings"] = [w for w in manifest["warnings"] if w == but or not w.startswith(old)]


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers adapter scaling."""
    register("scaling", ScalingExperiment)
