"""The steps of a run after its search, in order; runs, plans and verifications go through them.

Each function takes ``make``: a ``Runner``, a ``Planner`` or a ``Checker`` of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gapft_harness.core.records import Arm, Budget
from gapft_harness.engine.outputs import NOT_HERE, Output, Unknown
from gapft_harness.engine.step import Step
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, list_arms
from gapft_harness.run_directory.recorded import read_source
from gapft_harness.stages.experiment import Experiment
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.generation.chunks import read_decoding
from gapft_harness.stages.search.stage import build_search_step, find_searched_splits
from gapft_harness.stages.search.states import Window
from gapft_harness.stages.selection.choosing import count_condition_slots, count_slots
from gapft_harness.stages.selection.stage import (
    build_budget_step,
    build_select_step,
    find_original,
    require_equal_budgets,
)
from gapft_harness.stages.train.stage import TrainingSteps

#: Makes the outputs of steps, plans them, or checks recorded ones; returns them by name.
Make = Callable[[Iterable[Step]], Mapping[str, Output | Unknown]]


def list_search_steps(view: View, problems: Mapping[str, Any] | None = None) -> list[Step]:
    """List the steps of a run's finished searches.

    Args:
        view: the run.
        problems: what ``hash_problems`` returned for each split whose data are known.
    """
    if not (splits := find_searched_splits(view.run)):
        return []
    builder = replace(view.decoder, source={})
    known = problems or {}
    return [build_search_step(builder, split, known.get(split, NOT_HERE)) for split in splits]


def make_states(
    view: View, make: Make, splits: Iterable[str] = SPLITS
) -> Mapping[str, Output | Unknown]:
    """Make the states of splits from all samples, and the pool's from each condition's K."""
    windows: dict[str, list[Window | None]] = {split: [None] for split in SPLITS}
    windows["pool"] += [Window(0, k) for k in view.recipe.list_smaller_k()]
    searched = [split for split in SPLITS if split in splits]
    outputs = make([view.states(w, split) for split in searched for w in windows[split]])
    view.add(outputs)
    return outputs


@dataclass(frozen=True)
class Selections:
    """The training sets of a run.

    Attributes:
        n: the slots of matched conditions; 0 if there is nothing to train on.
        facts: what the steps report on each arm's training set and budget.
        outputs: the outputs by name.
        groups: the budget of each group of matched arms, by its first arm.
    """

    n: int
    facts: Mapping[Arm, Mapping[str, Any]] = field(default_factory=dict)
    outputs: Mapping[str, Output | Unknown] = field(default_factory=dict)
    groups: Mapping[Arm, Budget] = field(default_factory=dict)


def make_selections(view: View, make: Make) -> Selections:
    """Select every arm's training set, count its budget, and require equal budgets.

    Raises:
        UserError: a pool too small for the budget, or tokens that differ by more than the recipe
            allows.
        GapftError: matched arms have different budgets.
        NotKnownYet: the states are not made yet.
    """
    recipe = view.recipe
    n = count_slots(recipe.budget.n, _count_states(view, recipe.search.k))
    if not n:
        return Selections(0)
    slots = count_condition_slots(recipe, lambda name: _count_states(view, recipe.find_k(name)))
    limit = read_decoding(view.run.task).max_gen_toks
    arms = list_arms(recipe)
    steps = []
    for arm in arms:
        original = find_original(recipe, arm)
        tables = {
            "problems": view.output(layout.problems_path("pool")),
            "responses": view.output(layout.responses_path("pool")),
            "states": view.output(_find_states(view, recipe.find_k(arm.condition))),
        }
        step = build_select_step(
            recipe, original, slots[arm.condition], tables, limit, view.plugins, view.plugin_files
        )
        steps.append(replace(step, name=layout.selection_path(arm)))
    sets = make(steps)
    view.add(sets)
    budgets = make(
        [build_budget_step(recipe, arm, sets[layout.selection_path(arm)]) for arm in arms]
    )
    view.add(budgets)
    facts = {
        arm: {
            **sets[layout.selection_path(arm)].facts,
            **budgets[layout.budget_path(arm)].facts,
        }
        for arm in arms
    }
    groups = require_equal_budgets(recipe, slots, facts)
    return Selections(n, facts, {**sets, **budgets}, groups)


def follow_selections(view: View, make: Make) -> None:
    """Go through the steps of searches, states and selections."""
    make(list_search_steps(view))
    make_states(view, make)
    make_selections(view, make)


def follow_arms(view: View, make: Make, experiments: Iterable[Experiment]) -> None:
    """Go through the steps of trainings, audits and experiments."""
    view.add(make(list_training_steps(view)))
    view.add(make(list_audit_steps(view)))
    for experiment in experiments:
        follow_experiment(view, make, experiment)


def follow_experiment(view: View, make: Make, experiment: Experiment) -> None:
    """Go through the steps of an experiment."""
    for steps in experiment.steps(view):
        view.add(make(steps))


def _find_states(view: View, k: int) -> str:
    return layout.states_path("pool", None if k == view.recipe.search.k else (0, k))


def _count_states(view: View, k: int) -> Mapping[str, int]:
    """Return the numbers of the pool's problems by state, from the first K samples."""
    counts: Mapping[str, int] = view.output(_find_states(view, k)).facts["states"]
    return counts


def list_training_steps(view: View) -> list[Step]:
    """List the steps that train the adapters of the view's arms."""
    builder = TrainingSteps(
        view.recipe,
        view.run.task,
        read_source(view.run),
        view.plugins,
        view.plugin_files,
        view.run.path.resolve(),
    )
    pool = {
        "problems": view.output(layout.problems_path("pool")),
        "states": view.output(layout.states_path("pool")),
    }
    return [
        builder.build(
            arm,
            view.output(layout.selection_path(arm)),
            view.output(layout.budget_path(arm)),
            pool,
        )
        for arm in view.arms()
    ]


def list_audit_steps(view: View) -> list[Step]:
    """List the steps that decode the audit with the adapters of the view's arms."""
    return [view.decode(layout.decisions_path(arm), arm, verb="audit") for arm in view.arms()]
