"""The stages of a run in order. Each can run alone, and continues where it was interrupted.

search (pool and audit) → states → select → train → audit → experiments → report
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, list_splits
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.recipe_changes import RecipeChanges
from gapft_harness.stages.audit import audit_arm
from gapft_harness.stages.context import Context, require_selected
from gapft_harness.stages.experiment import Experiment, check_experiments, run_experiments
from gapft_harness.stages.experiment.driver import seal_decisions
from gapft_harness.stages.generation.reuse import REUSE_KEY, ReuseCounts, describe_tables
from gapft_harness.stages.integrity.inputs import (
    SECTION,
    InputsChanged,
    compare_inputs,
    record_plugins,
)
from gapft_harness.stages.report import run_report_stage
from gapft_harness.stages.search.stage import read_data, run_search_stage
from gapft_harness.stages.search.states import Window, write_split_states
from gapft_harness.stages.selection.stage import list_replicate_warnings, select_training_sets
from gapft_harness.stages.train.stage import run_train_stage
from gapft_harness.stages.train.stored import map_originals


def apply_changes(context: Context, include_paths: Sequence[str], stages: Sequence[str]) -> None:
    """Reset a run if its recipe, task, data, plugins or model changed.

    The stages then repeat the work, and reuse what the store has.

    Args:
        context: the run, with the new recipe.
        include_paths: folders with task YAML given to the command; empty for the folders of the
            search.
        stages: the stages that will run.

    Raises:
        UserError: inputs changed, and these stages cannot repeat the work, or work would be lost
            that is not in the store.
    """
    run = context.run
    searched_splits = [
        s for s in list_splits(run.recipe) if layout.responses_path(s) in run.manifest()["files"]
    ]
    has_all_splits = "search" in stages and {*searched_splits} <= {*context.splits}
    if run.is_empty() and not run.changes:
        return
    search_changes, input_check = run.changes.search_changes, None
    if not search_changes:
        try:
            input_check = compare_inputs(
                run, run.manifest(), context.plugins, include_paths, partial(read_data, context)
            )
        except InputsChanged as error:
            if not has_all_splits:
                raise
            search_changes = error.changes
            change_list = "; ".join(search_changes)
            context.report_line(
                f"warning: {run.path}: inputs changed: {change_list}; repeating dependent work"
            )
    elif not has_all_splits:
        raise UserError(
            f"run directory {run.path}: settings changed: {'; '.join(search_changes)}. Run the "
            "command without --only and --split, or use another --run-dir"
        )
    run.changes = RecipeChanges(search_changes, run.changes.selection_changes)
    if not run.is_empty():
        if search_changes:
            read_data(context, include_paths or None)  # if this fails, the run is unchanged
        if run.changes:
            run.require_stored()
    if search_changes:
        context.warn(run.record_changes(search_changes))
        run.reset_for_recipe()
    if input_check is None:
        return
    if input_check.new_inputs is not None:
        places = {
            key: input_check.new_inputs[key] for key in ("files", "include_paths", "data_dir")
        }
        run.update_manifest(lambda manifest: manifest[SECTION].update(places))
    for line in input_check.unchecked:
        context.report_line(line)


def run_states_stage(context: Context) -> None:
    """Compute the states (G, S, U) of pool and audit, and the evidence kept for each problem."""
    run = context.run
    _unseal_states_of_other_rule(context)
    for split in SPLITS:
        if not run.is_sealed(layout.states_path(split)):
            write_split_states(str(run.path), split, context.plugin_files)
        run.seal(layout.states_path(split))
    for k in run.recipe.list_smaller_k():
        table = layout.states_path("pool", (0, k))
        if not run.is_sealed(table):
            write_split_states(str(run.path), "pool", context.plugin_files, Window(0, k))
        run.seal(table)


def _unseal_states_of_other_rule(context: Context) -> None:
    """Remove states made by another response rule; nothing is trained on them yet."""
    run, task = context.run, context.run.manifest()["task"]
    keep = run.recipe.evidence.keep
    if keep is None or keep == task.get("keep", keep):
        return
    places = {name: layout.parse_path(name) for name in run.manifest()["files"]}
    windows = [name for name, place in places.items() if place and place.window]
    run.unseal([*map(layout.states_path, SPLITS), *windows])
    run.update_manifest(lambda manifest: manifest["task"].update({"keep": keep}))


def run_select_stage(context: Context) -> None:
    """Choose every arm's training set and budget, before anything is trained."""
    run = context.run
    facts = select_training_sets(run, context.plugin_files)
    context.warn(run.record_changes())
    if run.changes.selection_changes:
        run.remove_trained()
    run.write_recipe()

    def apply_selection(manifest: Manifest) -> None:
        trained = {arm.name for arm in run.find_trained_arms()}
        trained_budgets = {
            name: entry for name, entry in manifest["budgets"].items() if name in trained
        }
        manifest["n"] = facts["n"]
        manifest["budgets"] = trained_budgets | facts["budgets"]
        record_plugins(
            manifest, context.plugins, [("selector", name) for name in run.recipe.selectors()]
        )

    run.update_manifest(apply_selection)
    for arm in context.list_trainable_arms():
        run.seal(layout.selection_path(arm))
    for line in (*_describe_budgets(context), *list_replicate_warnings(run.recipe)):
        context.report_line(line)
    check_experiments(context, context.list_trainable_arms())


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


def run_audit_stage(context: Context) -> None:
    """Decode the audit with every arm's adapter."""
    run = context.run
    require_selected(run)
    arms, reusing_arms = context.list_trainable_arms(), map_originals(run.manifest())
    foreseen: list[ReuseCounts] = []
    # arms that reuse an adapter come after its owner and find the responses in the store
    for arm_group in (
        [arm for arm in arms if arm not in reusing_arms],
        [arm for arm in arms if arm in reusing_arms],
    ):
        jobs = [context.build_arm_job("audit", audit_arm, arm) for arm in arm_group]
        results = context.executor.run(jobs, context.progress)
        for arm, facts in zip(arm_group, results, strict=True):
            if REUSE_KEY in facts:
                foreseen.append(ReuseCounts(**facts.pop(REUSE_KEY)))
            seal_decisions(context, layout.decisions_path(arm), facts)
    if foreseen:
        context.report_line(f"audit: {describe_tables(foreseen, run.path)}")


def _run_search_stage(context: Context) -> None:
    run_search_stage(context)
    check_experiments(context, ())


STAGES: dict[str, Callable[[Context], None]] = {
    "search": _run_search_stage,
    "states": run_states_stage,
    "select": run_select_stage,
    "train": run_train_stage,
    "audit": run_audit_stage,
    "experiments": run_experiments,
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
