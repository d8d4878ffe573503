"""Run steps for a stage, and record their outputs in the manifest, which the report reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gapft_harness.core.files import sha256_cached
from gapft_harness.core.records import Arm
from gapft_harness.engine.outputs import Output, Unknown
from gapft_harness.engine.run import Run
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import open_store
from gapft_harness.recipe.recipe import Recipe, resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest, TaskFacts
from gapft_harness.run_directory.recording import record_judging
from gapft_harness.stages.context import Context
from gapft_harness.stages.selection.stage import build_condition_facts, read_budget

if TYPE_CHECKING:
    from gapft_harness.stages.experiment.view import View
    from gapft_harness.stages.steps import Selections

#: Facts of a training set beside its budget.
_SET_FACTS = ("matched", "ends_unknown", "unverified")

#: In the manifest's facts of an adapter: the arm of this run whose adapter it reuses.
TRAINED_AS = "trained_as"


def build_runner(context: Context) -> Runner:
    """Build the runner of a run's steps."""
    return Runner(
        Run(context.run.path),
        open_store(context.run.path),
        context.executor,
        context.plugin_files,
        context.progress,
        context.report_line,
    )


def record_outputs(context: Context, outputs: Mapping[str, Output | Unknown]) -> None:
    """Record outputs in the manifest; print the warnings of new tables of decisions."""
    files = context.run.manifest()["files"]
    digests = {name: sha256_cached(output.path) for name, output in outputs.items()}
    new = {name: outputs[name] for name, digest in digests.items() if files.get(name) != digest}
    tables = {
        layout.find_table_name(name): dict(output.facts)
        for name, output in new.items()
        if layout.find_top_folder(name) == layout.DECISIONS
    }
    context.run.update_manifest(partial(_record, digests=digests, tables=tables))
    for name, facts in tables.items():
        context.warn(facts["warnings"], name)


def _record(
    manifest: Manifest, digests: Mapping[str, str], tables: Mapping[str, dict[str, object]]
) -> None:
    manifest["files"].update(digests)
    for name, facts in tables.items():
        record_judging(manifest, name, facts)


def record_search_outputs(
    context: Context, task: Mapping[str, Any], outputs: Mapping[str, Output]
) -> None:
    """Record the searches of splits in the manifest: their tables, task, model and verdicts."""
    names = (layout.problems_path, layout.responses_path)
    tables = [name(split) for split in outputs for name in names]
    digests = {table: sha256_cached(context.run.path / table) for table in tables}
    pretrained = resolve_model_args(context.run.recipe)["pretrained"]

    def record(manifest: Manifest) -> None:
        manifest["files"].update(digests)
        manifest["task"] = cast(TaskFacts, dict(task))
        manifest["include_paths"] = [str(Path(path).resolve()) for path in context.include_paths]
        imported = {k: v for k, v in manifest.get("imported", {}).items() if k not in outputs}
        for split, output in outputs.items():
            source = dict(output.facts["source"])
            if "pretrained" in source:
                source["pretrained"] = pretrained
            if logs := output.facts.get("imported"):
                imported[split] = logs
            if not logs or not manifest["source"]:
                manifest["source"] = source
            record_judging(manifest, split, dict(output.facts))
        if imported or "imported" in manifest:
            manifest["imported"] = imported

    context.run.update_manifest(record)


def record_selections(manifest: Manifest, selections: Selections, recipe: Recipe) -> None:
    """Record n and the budgets of a run's arms; those of arms with an adapter stay."""
    adapters = filter(None, map(layout.parse_path, manifest["files"]))
    trained = {place.arm.name for place in adapters if place.kind == layout.ADAPTERS and place.arm}
    budgets: dict[str, Any] = {
        name: entry for name, entry in manifest["budgets"].items() if name in trained
    }
    for arm, facts in selections.facts.items():
        budgets[arm.name] = {
            **asdict(read_budget(facts)),
            **{
                key: facts[key] for key in ("matched", "ends_unknown", "unverified") if key in facts
            },
            **build_condition_facts(recipe, arm),
        }
    manifest["n"] = selections.n
    manifest["budgets"] = budgets


def describe_training(
    steps: Sequence[Step], outputs: Mapping[str, Output], view: View
) -> dict[str, dict[str, Any]]:
    """Return the trainers' facts on each arm, for the manifest.

    Of arms with equal keys, the one that the manifest had first is the one that was trained. If the
    run's responses may depend on an arm's name, such arms are not named.
    """
    first_by_key: dict[str, str] = {}
    training: dict[str, dict[str, Any]] = {}
    by_name = {Arm(*step.operational["arm"]).name: step for step in steps}
    known = [name for name in view.manifest()["training"] if name in by_name]
    for name in dict.fromkeys([*known, *by_name]):
        step = by_name[name]
        facts = dict(outputs[step.name].facts)
        original = first_by_key.setdefault(step.key, name)
        if original != name:
            facts.pop("seconds", None)
            if view.generates():
                facts = {TRAINED_AS: original, **facts}
        training[name] = facts
    return training
