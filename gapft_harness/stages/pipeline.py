"""The stages of a run in order. Each can run alone, and continues where it was interrupted.

search (pool and audit) → states → select → train → audit → experiments → report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gapft_harness.engine.run import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, list_splits
from gapft_harness.run_directory.manifest import record_warnings
from gapft_harness.run_directory.recipe_changes import list_setting_changes
from gapft_harness.stages.arm_facts import describe_training, record_selections
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import Experiment, check_experiments, run_experiments
from gapft_harness.stages.experiment.stage import build_view
from gapft_harness.stages.recorded_outputs import build_runner, record_outputs
from gapft_harness.stages.report import run_report_stage
from gapft_harness.stages.search.stage import run_search_stage
from gapft_harness.stages.selection.stage import list_arms, list_replicate_warnings
from gapft_harness.stages.steps import (
    list_audit_steps,
    list_training_steps,
    make_selections,
    make_states,
    require_current,
    require_current_searches,
)
from gapft_harness.stages.train.online import list_reward_warnings
from gapft_harness.stages.train.requirements import check_packages
from gapft_harness.stages.train.stage import divide_steps


def run_states_stage(context: Context) -> None:
    """Compute the states (G, S, U) of pool and audit, and the evidence kept for each problem."""
    run = context.run
    if keep := run.recipe.evidence.keep:
        run.update_manifest(lambda manifest: manifest["task"].update({"keep": keep}))
    view, runner = build_view(context), build_runner(context)
    require_current_searches(view)
    record_outputs(context, make_states(view, runner, context.splits))


def run_select_stage(context: Context) -> None:
    """Choose every arm's training set and budget, before anything is trained."""
    run = context.run
    view, runner = build_view(context), build_runner(context)
    require_current_searches(view)
    record_outputs(context, make_states(view, runner))
    selections = make_selections(view, runner)
    has_new_settings = list_setting_changes(RunDirectory.open(run.path).recipe, run.recipe)
    context.warn(run.record_changes(() if has_new_settings else [*dict.fromkeys(runner.changes)]))
    if run.changes:
        _remove_other_arms(context)
    run.write_recipe()
    record_outputs(context, selections.outputs)
    run.update_manifest(partial(record_selections, selections=selections, recipe=run.recipe))
    for line in (*_describe_budgets(context), *list_replicate_warnings(run.recipe)):
        context.report_line(line)
    check_experiments(context, context.list_trainable_arms())


def _remove_other_splits(run: RunDirectory) -> None:
    """Remove a calibration that a changed recipe no longer has; the store keeps it."""
    if CALIBRATION not in list_splits(run.recipe):
        Run(run.path).remove([CALIBRATION])
        run.unseal([layout.problems_path(CALIBRATION), layout.responses_path(CALIBRATION)])


def _remove_other_arms(context: Context) -> None:
    """Remove the outputs of arms that a changed recipe no longer has; the store keeps them."""
    run, arms = context.run, list_arms(context.run.recipe)
    places = {name: layout.parse_path(name) for name in run.manifest()["files"]}
    others = [
        name for name, place in places.items() if place and place.arm and place.arm not in arms
    ]
    others += [
        layout.budget_path(place.arm)
        for name in others
        if (place := places[name]) and place.arm and place.kind == layout.SELECTIONS
    ]
    Run(run.path).remove(others)
    run.unseal(others)


def _describe_budgets(context: Context) -> Iterator[str]:
    """Yield a sentence for each distinct budget, with its conditions."""
    budgets = context.run.manifest()["budgets"]
    conditions_by_budget: dict[str, dict[str, None]] = {}
    for arm in context.list_trainable_arms():
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
    require_current(build_view(context))
    check_packages(run.recipe, context.plugins)
    warnings = list_reward_warnings(run.recipe, run.manifest()["task"], context.plugins)
    run.update_manifest(partial(record_warnings, warnings=warnings))
    context.warn(warnings)
    view, runner = build_view(context), build_runner(context)
    steps = list_training_steps(view)
    missing = {step.key: step for step in divide_steps(context, runner.list_missing(steps))}
    outputs = runner([replace(missing.get(step.key, step), name=step.name) for step in steps])
    record_outputs(context, outputs)
    training = describe_training(steps, outputs, view)
    run.update_manifest(lambda manifest: manifest["training"].update(training))
    if reused := len({step.key for step in steps} - missing.keys()):
        context.report_line(f"train: {reused} reused, {len(missing)} new")


def run_audit_stage(context: Context) -> None:
    """Decode the audit with every arm's adapter."""
    require_current(build_view(context))
    view, runner = build_view(context), build_runner(context)
    record_outputs(context, runner(list_audit_steps(view)))


def _run_experiments_stage(context: Context) -> None:
    require_current(build_view(context))
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
    """Run stages in order.

    Args:
        context: the run.
        names: the stages.
        begin: called with each stage's name before it runs.
        end: called after each stage.

    Returns:
        The path of the report's page.
    """
    for name in names:
        begin(name)
        with context.run.record_stage_time(name):
            STAGES[name](context)
        end()
    return context.run.path / layout.REPORT / "index.html"
