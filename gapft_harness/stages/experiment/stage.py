"""The stage of experiments: checks before training, and the steps that they request."""

from __future__ import annotations

from collections.abc import Iterable

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.stages.experiment.view import RUN_FOLDERS, View


def check_experiments(context: Context, arms: Iterable[Arm]) -> None:
    """Stop if an experiment is impossible, and print the warnings of experiments.

    Args:
        context: the run.
        arms: the arms with a training set; empty after the search.

    Raises:
        UserError: the search or the selection does not fit an experiment of the recipe.
    """
    run = context.run
    view = View(run, context.plugins, arms, context.plugin_files)
    warnings: list[str] = []
    for experiment in load_experiments(run.recipe, context.plugins):
        for fault in experiment.faults(view):
            raise UserError(f"key 'experiments.{experiment.name}': {fault}")
        prefix = f"experiment {experiment.name}: "
        warnings += [prefix + line for line in experiment.warnings(view)]
    earlier = run.facts()["warnings"].get("experiments", [])
    context.warn(line for line in warnings if line not in earlier)
    # before the selection an experiment knows too little to withdraw an earlier warning
    kept = [] if view.arms() else earlier
    lines = [*dict.fromkeys([*kept, *warnings])]
    run.update_facts(lambda facts: facts["warnings"].update(experiments=lines))


def build_view(context: Context) -> View:
    """Build the view of a run's arms for experiments whose steps run."""
    arms = context.list_trainable_arms()
    files = context.plugin_files
    return View(context.run, context.plugins, arms, files, context.executor, context.cache)


def run_experiments(context: Context) -> None:
    """Make the outputs of all experiments of the recipe (the stage ``experiments``).

    Outputs that no experiment requests any more leave the run; the store keeps them.

    Raises:
        UserError: a finished file was changed.
    """
    run = context.run
    view = build_view(context)
    runner = context.build_runner()
    for experiment in load_experiments(run.recipe, context.plugins):
        for steps in experiment.steps(view):
            view.add(context.make_decodes(runner, steps))
    others = sorted(name for name in run.read_records().keys() - runner.requested if _is_own(name))
    if others:
        run.remove(others)
        context.report_line(
            f"experiments: removed files that are no longer needed: {', '.join(others)}"
        )


def _is_own(name: str) -> bool:
    """Return whether an output can only be that of an experiment."""
    place = layout.parse_path(name)
    if place is None:
        return layout.find_top_folder(name) not in RUN_FOLDERS
    if place.kind == layout.STATES:
        return place.window is not None and place.split == "audit"
    if place.kind == layout.DECISIONS:
        return bool(place.experiment)
    return place.kind not in RUN_FOLDERS
