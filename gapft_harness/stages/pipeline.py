"""The stages of a run in order. Each can run alone, and continues where it was interrupted.

search (pool and audit) → states → select → train → audit → experiments → report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gapft_harness.engine.planner import StrictPlanner
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, list_arms, list_splits
from gapft_harness.run_directory.recipe_changes import require_searched_recipe
from gapft_harness.run_directory.recorded import read_budgets
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.stage import build_view, check_experiments, run_experiments
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.report import is_report_current, run_report_stage
from gapft_harness.stages.search.stage import run_search_stage
from gapft_harness.stages.selection.stage import list_replicate_warnings
from gapft_harness.stages.steps import (
    follow_selections,
    list_audit_steps,
    list_search_steps,
    make_selections,
    make_states,
)
from gapft_harness.stages.train.requirements import check_packages, list_reward_warnings
from gapft_harness.stages.train.stage import divide_steps, list_training_steps


def run_states_stage(context: Context) -> None:
    """Compute the states (G, S, U) of pool and audit, and the evidence kept for each problem."""
    view = build_view(context)
    runner = context.build_runner()
    _require_search(view)
    make_states(view, runner, context.splits)


def run_select_stage(context: Context) -> None:
    """Choose every arm's training set and budget, before anything is trained."""
    run = context.run
    view = build_view(context)
    runner = context.build_runner()
    _require_search(view)
    make_states(view, runner)
    make_selections(view, runner)
    context.warn(run.record_recipe([*dict.fromkeys(runner.changes)]))
    _remove_other_arms(run, runner.requested)
    run.write_recipe()
    for line in (*_describe_budgets(run), *list_replicate_warnings(run.recipe)):
        context.report_line(line)
    check_experiments(context, context.list_trainable_arms())


def _require_search(view: View) -> None:
    """Require that the run was searched, with the settings of its recipe."""
    StrictPlanner(view.run)(list_search_steps(view))
    require_searched_recipe(view.run.path, view.run.recipe, view.run.task)


def _remove_other_splits(run: RunDirectory) -> None:
    """Remove a calibration that a changed recipe no longer has; the store keeps it."""
    if CALIBRATION not in list_splits(run.recipe):
        run.remove([CALIBRATION])


def _remove_other_arms(run: RunDirectory, requested: Iterable[str]) -> None:
    """Remove the outputs of arms for which nothing was requested; the store keeps them.

    If no setting changed, arms stay that the recipe does not have.
    """
    selected = {place.arm for place in map(layout.parse_path, requested) if place and place.arm}
    places = {name: layout.parse_path(name) for name in run.read_records()}
    others = [n for n, place in places.items() if place and place.arm and place.arm not in selected]
    if run.changes or not selected:
        run.remove(others)


def _describe_budgets(run: RunDirectory) -> Iterator[str]:
    """Yield a sentence for each distinct budget, with its conditions."""
    budgets = read_budgets(run)
    conditions_by_budget: dict[str, dict[str, None]] = {}
    for arm in list_arms(run.recipe) if budgets else ():
        budget = budgets[arm.name]
        budget_text = f"n = {budget['n']:,}, N = {budget['exposures']:,}, J = {budget['steps']:,}"
        conditions_by_budget.setdefault(budget_text, {})[arm.condition] = None
    if not conditions_by_budget:
        yield "search recovered no failures, so there is nothing to train on"
    for budget_text, conditions in conditions_by_budget.items():
        yield f"{budget_text}: {', '.join(conditions)}"


def run_train_stage(context: Context) -> None:
    """Train one LoRA adapter per condition and seed, unless the store has it.

    Raises:
        UserError: nothing is selected yet, or a required package is missing.
    """
    run = context.run
    view = build_view(context)
    follow_selections(view, StrictPlanner(run))
    check_packages(run.recipe, context.plugins)
    warnings = list_reward_warnings(run.recipe, run.task, context.plugins)
    run.update_facts(lambda facts: facts["warnings"].update(train=warnings))
    context.warn(warnings)
    steps = list_training_steps(view)
    missing = context.plan(steps).new
    first_by_key = {step.key: step for step in reversed(steps) if step.name in missing}
    divided = {step.key: step for step in divide_steps(context, [*first_by_key.values()])}
    context.build_runner()([replace(divided.get(s.key, s), name=s.name) for s in steps])
    if reused := len({step.key for step in steps} - divided.keys()):
        context.report_line(f"train: {reused} reused, {len(divided)} new")


def run_audit_stage(context: Context) -> None:
    """Decode the audit with every arm's adapter."""
    view = build_view(context)
    follow_selections(view, StrictPlanner(context.run))
    context.make_decodes(context.build_runner(), list_audit_steps(view))


def _run_experiments_stage(context: Context) -> None:
    follow_selections(build_view(context), StrictPlanner(context.run))
    run_experiments(context)


def _run_search_stage(context: Context) -> None:
    run_search_stage(context)
    _remove_other_splits(context.run)
    check_experiments(context, ())


STAGES: dict[str, Callable[[Context], None]] = {
    "search": _run_search_stage,
    "states": run_states_stage,
    "select": run_select_stage,
    "train": run_train_stage,
    "audit": run_audit_stage,
    "experiments": _run_experiments_stage,
    "report": run_report_stage,
}


def list_stages(experiments: Iterable[Experiment]) -> list[str]:
    """List the stages of a run with these experiments, in order."""
    has_steps = any(experiment.has_steps for experiment in experiments)
    return [name for name in STAGES if name != "experiments" or has_steps]


def run_stages(
    context: Context,
    names: Sequence[str],
    begin: Callable[[str], None],
    end: Callable[[], None] = lambda: None,
) -> Path:
    """Run stages in order; a report that is current is written again only if it alone is asked for.

    Args:
        context: the run.
        names: the stages.
        begin: called with each stage's name before it runs.
        end: called after each stage.

    Returns:
        The path of the report's page.
    """
    for name in names:
        if name == "report" and len(names) > 1 and is_report_current(context):
            continue
        begin(name)
        with context.run.record_stage_time(name):
            STAGES[name](context)
        end()
    return context.run.path / layout.REPORT / "index.html"
