"""Make the outputs of steps for a stage."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.engine.outputs import Output
from gapft_harness.engine.runner import Runner
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import open_store
from gapft_harness.run_directory import layout
from gapft_harness.stages.context import Context


def build_runner(context: Context) -> Runner:
    """Build the runner of a run's steps."""
    return Runner(
        context.run.outputs,
        open_store(context.run.path),
        context.executor,
        context.plugin_files,
        context.progress,
        context.report_line,
    )


def make_outputs(context: Context, runner: Runner, steps: Sequence[Step]) -> dict[str, Output]:
    """Make the outputs of steps, and print the warnings of new tables of decisions."""
    before = {name: record.digest for name, record in runner.run.read_records().items()}
    outputs = runner(steps)
    for name, record in runner.run.read_records().items():
        is_decoded = layout.find_top_folder(name) == layout.DECISIONS
        if is_decoded and name in outputs and before.get(name) != record.digest:
            context.warn(record.facts.get("warnings", ()), layout.find_table_name(name))
    return outputs
