"""The report stage: what is sealed, as tables, figures and pages; no plugin has to be at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import examine_plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import only, require_recorded
from gapft_harness.run_directory.directory import RunDirectory, stated
from gapft_harness.stages.audit.other_rule import judge_by_other_rule
from gapft_harness.stages.experiment import experiments_of, parts
from gapft_harness.stages.foundation.disjoint import require_apart
from gapft_harness.stages.selection.choosing import has_own_budget
from gapft_harness.stages.selection.stage import arms

if TYPE_CHECKING:
    from gapft_harness.report.reading.inputs import ReportInputs
    from gapft_harness.stages.context import Context


def report_stage(context: Context) -> None:
    """Tables, figures, report.md, index.html, explorer.html and results.json."""
    from gapft_harness.report import write_report

    folder = context.run.path / layout.REPORT
    write_report(report_inputs(context), folder, context.plugins.report_sections())


def report_inputs(context: Context) -> ReportInputs:
    """What a report is made of, held to its hashes, and the audit judged by the other rule.

    Raises:
        UserError: something is not there yet, or was changed, the recipe among it, or a problem
            is in two splits.
    """
    from gapft_harness.report.reading.inputs import read_inputs

    require_recorded(context.run.path, context.run.recipe, context.run.manifest())
    shown = only(context.run.recipe, context.conditions, context.seeds)
    for experiment in experiments_of(context):
        if not {*experiment.conditions(context.run.recipe)} <= {*shown.conditions}:
            shown = shown.without(experiment.name)
    context = replace(context, run=RunDirectory(context.run.path, shown))
    run = context.run
    require_sealed(run)
    for experiment in experiments_of(context):
        for file in experiment.reads(context):
            run.sealed(file)
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
    inputs = read_inputs(run.path, manifest, parts(experiments_of(context)))
    return replace(inputs, other_rule=judge_by_other_rule(inputs, context.plugins))


def require_sealed(run: RunDirectory) -> None:
    """Holds what a report of a run reads to its hashes; which arms, the run's recipe says.

    Raises:
        UserError: something is not there yet, or was changed, or a problem is in two splits, or
            the manifest says of a budget what its selector does not declare.
    """
    from gapft_harness.stages.context import require_selected

    require_selected(run)
    for split in stated(run.recipe):
        for table in (layout.problems, layout.responses, layout.states):
            run.sealed(table(split))
    require_apart(run, stated(run.recipe))
    budgets = run.manifest()["budgets"]
    for arm in (arm for arm in arms(run.recipe) if arm.name in budgets):
        run.sealed(layout.selection(arm))
        for audit in ("", *run.recipe.further):
            run.sealed(layout.decisions_on(arm, audit))
    _require_declared(run, budgets)
    for name in run.recipe.subsets:
        run.sealed(layout.items(layout.audit(name)))


def _require_declared(run: RunDirectory, budgets: Mapping[str, Mapping[str, Any]]) -> None:
    """An arm is matched if its selector declares it. Bundled ones: others need not be at hand."""
    (plugins, _), taken = examine_plugins(), run.recipe.taken()
    for arm in (arm for arm in arms(run.recipe) if arm.name in budgets):
        selector = run.recipe.conditions[arm.condition].selector
        if arm.condition in taken or plugins.code("selector", selector) != "":
            continue
        matched = not has_own_budget(plugins.get("selector", selector))
        said = budgets[arm.name].get("matched", True)
        if said != matched:
            raise UserError(
                f"{layout.MANIFEST}: the budget of {arm.name} has matched = {said}, and the "
                f"selector {selector!r} gives {matched}; restore the manifest"
            )
