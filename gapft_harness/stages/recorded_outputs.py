"""Run steps for a stage, and record their outputs in the manifest, which the report reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

from gapft_harness.core.files import sha256_cached
from gapft_harness.engine.outputs import Output, Unknown
from gapft_harness.engine.run import Run
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.store import open_store
from gapft_harness.recipe.recipe import resolve_model_args
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest, TaskFacts
from gapft_harness.run_directory.recording import record_judging
from gapft_harness.stages.context import Context


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
