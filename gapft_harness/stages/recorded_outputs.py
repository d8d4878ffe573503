"""Run steps for a stage, and record their outputs in the manifest, which the report reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gapft_harness.core.files import sha256_cached
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.run import Run
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.store import open_store
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest
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


def record_outputs(context: Context, outputs: Mapping[str, Output]) -> None:
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
