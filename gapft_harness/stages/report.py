"""The report stage: what is sealed, as tables, figures and pages; no plugin has to be at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapft_harness.experiments.allocation.halves import exposed_file
from gapft_harness.experiments.scaling.job import scaled_file
from gapft_harness.experiments.scaling.stage import scaled_decisions
from gapft_harness.run_directory.binding import only
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.stages.foundation.disjoint import require_apart
from gapft_harness.stages.selection.stage import arms

if TYPE_CHECKING:
    from gapft_harness.stages.context import Context


def report_stage(context: Context) -> None:
    """Tables, figures, report.md, index.html and results.json."""
    from gapft_harness.report import read_inputs, write_report
    from gapft_harness.stages.context import require_selected

    shown = only(context.run.recipe, context.conditions, context.seeds)
    context = replace(context, run=RunDirectory(context.run.path, shown))
    run = context.run
    require_selected(run)
    for split in SPLITS:
        for file in ("problems", "responses", "states"):
            run.sealed(f"{split}/{file}.parquet")
    require_apart(run, SPLITS)
    for arm in context.arms():
        run.sealed(f"decisions/{arm.name}.parquet")
    for arm, scale in scaled_decisions(context):
        run.sealed(scaled_file(arm, scale))
    for arm in context.compared_arms():
        run.sealed(f"selections/{arm.name}.parquet")
        run.sealed(exposed_file(arm))
    manifest = run.manifest() | {"recipe": shown.model_dump(mode="json")}
    left_out: dict[str, list[str]] = {}
    for arm in run.trained_arms():
        if arm not in arms(shown):
            left_out.setdefault(arm.condition, []).append(str(arm.seed))
    if left_out:
        found = (f"{name} (seeds {', '.join(seeds)})" for name, seeds in left_out.items())
        line = (
            "trained, and not in this report, which has every condition under every seed: "
            f"{'; '.join(found)}"
        )
        manifest["warnings"].append(line)
        context.say(f"warning: {line}")
    write_report(
        read_inputs(run.path, manifest), run.path / "report", context.plugins.report_sections()
    )
