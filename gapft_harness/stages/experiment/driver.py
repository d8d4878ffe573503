"""The driver of all experiments: checks before training, and running their steps.

A finished step is kept if its recorded key is still current; otherwise its output is removed and
made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest, StepFacts, record_warnings
from gapft_harness.run_directory.recording import record_judging
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.experiment.loading import find_experiments
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.steps import Decode, Step, View, build_step_facts, compute_key
from gapft_harness.stages.generation.reuse import REUSE_KEY, ReuseCounts
from gapft_harness.stages.train.stored import map_originals


def check_experiments(context: Context, arms: Iterable[Arm]) -> None:
    """Stop if an experiment is impossible, and print the warnings of experiments.

    Args:
        context: the run.
        arms: the arms with a training set; empty after the search.

    Raises:
        UserError: the search or the selection does not fit an experiment of the recipe.
    """
    view = View(context.run, context.plugins, arms)
    for experiment in find_experiments(context):
        for fault in experiment.faults(view):
            raise UserError(f"key 'experiments.{experiment.name}': {fault}")
        prefix = f"experiment {experiment.name}: "
        warnings = [prefix + line for line in experiment.warnings(view)]
        context.warn(line for line in warnings if line not in context.run.manifest()["warnings"])
        # before the selection an experiment knows too little to withdraw an earlier warning
        replaced = prefix if view.arms() else ""
        context.run.update_manifest(partial(_record_warnings, prefix=replaced, warnings=warnings))


def _record_warnings(manifest: Manifest, prefix: str, warnings: list[str]) -> None:
    """Record warnings; earlier ones with the prefix (if not empty) stay only if still given."""
    earlier = manifest["warnings"]
    manifest["warnings"] = [
        line for line in earlier if not prefix or line in warnings or not line.startswith(prefix)
    ]
    record_warnings(manifest, warnings)


def run_experiments(context: Context) -> None:
    """Run the steps of all experiments of the recipe (the stage ``experiments``).

    Raises:
        UserError: an earlier stage has not run, or a sealed file was changed.
    """
    require_selected(context.run)
    view = View(context.run, context.plugins, context.list_trainable_arms())
    generators = {experiment: experiment.steps(view) for experiment in find_experiments(context)}
    makers: dict[str, str] = {}
    while generators:
        batch: dict[str, tuple[str, Step]] = {}
        for experiment, generator in [*generators.items()]:
            next_steps = next(generator, None)
            if next_steps is None:
                del generators[experiment]
                continue
            for file, step in next_steps.items():
                if makers.setdefault(file, experiment.name) != experiment.name:
                    raise UserError(
                        f"{file}: made by both experiments {makers[file]} and {experiment.name}; "
                        "remove one of them from the recipe"
                    )
                batch[file] = experiment.name, step
        _run_steps(context, batch)
    _remove_unrequested(context, makers)


def _remove_unrequested(context: Context, makers: Mapping[str, str]) -> None:
    """Remove earlier output of the recipe's experiments that none of them requests now.

    Args:
        context: the run.
        makers: the name of the experiment that requests each file.
    """
    names = [experiment.name for experiment in find_experiments(context)]
    records = context.run.manifest().get("steps", {})
    unrequested = [
        file
        for file, record in records.items()
        if record["experiment"] in names and file not in makers
    ]
    if unrequested:
        context.report_line(
            f"experiments: removed files that are no longer needed: {', '.join(unrequested)}"
        )
    context.run.unseal(unrequested)


def _run_steps(context: Context, batch: Mapping[str, tuple[str, Step]]) -> None:
    """Run the steps of a batch whose output does not exist yet, and seal it."""
    run, files = context.run, context.run.manifest()["files"]
    records = {
        file: build_step_facts(step, name, context.plugins, files)
        for file, (name, step) in batch.items()
    }
    unfinished = {file: batch[file][1] for file in _remove_stale(context, batch, records)}
    run.update_manifest(
        partial(_record_steps, records={file: records[file] for file in unfinished})
    )
    reused_adapters = map_originals(run.manifest())
    # an arm that reuses an adapter comes after its owner and finds the responses in the store
    for reuses_adapter in (False, True):
        jobs = {
            file: step.job(context, file)
            for file, step in unfinished.items()
            if reuses_adapter == (isinstance(step, Decode) and step.arm in reused_adapters)
            and (isinstance(step, Decode) or not (run.path / file).exists())
        }
        results = context.executor.run([*jobs.values()], context.progress)
        for file, facts in zip(jobs, results, strict=True):
            if isinstance(unfinished[file], Decode):
                seal_decisions(context, file, facts)
    for file in unfinished:
        run.seal(file)


def _record_steps(manifest: Manifest, records: Mapping[str, StepFacts]) -> None:
    if records:
        manifest.setdefault("steps", {}).update(records)


def seal_decisions(context: Context, file: str, facts: dict[str, Any]) -> None:
    """Seal a table of decisions, and record its facts.

    Args:
        context: the run.
        file: the table.
        facts: the facts of ``sealing.write_responses``.
    """
    name = layout.find_table_name(file)
    context.run.seal(file)
    context.run.update_manifest(partial(record_judging, name=name, facts=facts))
    if REUSE_KEY in facts:
        context.report_line(f"{name}: {ReuseCounts(**facts[REUSE_KEY]).describe(context.run.path)}")
    context.warn(facts["warnings"], name)


def _remove_stale(
    context: Context, batch: Mapping[str, tuple[str, Step]], records: Mapping[str, StepFacts]
) -> list[str]:
    """Remove stale output, print the reason, and list the files to make."""
    run, manifest = context.run, context.run.manifest()
    unfinished, stale_files, reasons = [], list[str](), Counter[tuple[str, str]]()
    for file, record in records.items():
        earlier_record, path = manifest.get("steps", {}).get(file), run.path / file
        is_sealed = file in manifest["files"]
        if earlier_record is not None and earlier_record["key"] == record["key"]:
            if is_sealed and path.exists():
                run.sealed(file)
                continue
            # an unsealed folder may be a partial copy; a step that does not repeat has a new hash
            if path.is_dir() or (is_sealed and not batch[file][1].repeats):
                stale_files.append(file)
        elif path.exists() or is_sealed:
            stale_files.append(file)
            reasons[record["experiment"], _find_reason(earlier_record, record)] += 1
        unfinished.append(file)
    for (name, reason), count in reasons.items():
        subject = "file" if count == 1 else "files"
        context.report_line(f"{name}: making {count} {subject} again: {reason}")
    run.unseal(stale_files)
    return unfinished


def _find_reason(earlier_record: StepFacts | None, record: StepFacts) -> str:
    if earlier_record is None:
        return "the manifest has no record of how it was made"
    for key, subject in (("code", "the plugin"), ("settings", "settings"), ("version", "the step")):
        if earlier_record.get(key) != record.get(key):
            return f"{subject} changed"
    return "its inputs changed"


def require_finished_steps(context: Context) -> None:
    """Check the hashes and keys of all experiment output, for a report.

    The code of a plugin may have changed since: authors edit its part of the report.

    Raises:
        UserError: output is missing, was changed, or was made with other settings.
    """
    view = View(context.run, context.plugins, context.list_trainable_arms())
    for experiment in find_experiments(context):
        for steps in experiment.steps(view):
            manifest = context.run.manifest()
            for file, step in steps.items():
                path = context.run.sealed(file)
                record = manifest.get("steps", {}).get(file)
                if not _is_current(record, step, experiment, context, manifest):
                    raise UserError(
                        f"{path}: was made with other settings or from other files than those of "
                        f"the recipe and the run (experiments.{experiment.name}); gapft run --only "
                        "experiments makes it again"
                    )


def _is_current(
    record: StepFacts | None,
    step: Step,
    experiment: Experiment,
    context: Context,
    manifest: Manifest,
) -> bool:
    """Return whether a step's record has the present settings and inputs; code is ignored."""
    if record is None:
        return False
    files = manifest["files"]
    new_record: StepFacts = {
        **build_step_facts(step, experiment.name, context.plugins, files),
        "code": record["code"],
    }
    return record["key"] == compute_key(new_record, files)


def count_finished_steps(experiment: Experiment, view: View) -> tuple[int, int]:
    """Count the finished steps of an experiment, and the steps that are known so far.

    Args:
        experiment: the experiment.
        view: the run.
    """
    finished_count = known_count = 0
    for steps in experiment.steps(view):
        manifest = view.manifest()
        for file, step in steps.items():
            known_count += 1
            record = manifest.get("steps", {}).get(file)
            if file not in manifest["files"] or record is None:
                continue
            try:
                new_record = build_step_facts(
                    step, experiment.name, view.plugins, manifest["files"]
                )
            except UserError:  # an input is missing
                continue
            finished_count += new_record["key"] == record["key"]
        if finished_count < known_count:
            break
    return finished_count, known_count
