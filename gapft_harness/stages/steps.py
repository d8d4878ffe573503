"""The steps of a run after its search, in order; runs, plans and verifications go through them.

Each function takes ``make``: a ``Runner``, a ``Planner`` or a ``Checker`` of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gapft_harness.core.records import Arm, Budget
from gapft_harness.engine.outputs import NOT_HERE, Output, Unknown
from gapft_harness.engine.step import Step
from gapft_harness.hooks.registration import SelectorTraits
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, list_arms
from gapft_harness.stages.descriptions import describe_argument
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.search.stage import build_search_step, find_searched_splits
from gapft_harness.stages.search.states import Window
from gapft_harness.stages.selection.choosing import count_condition_slots, count_slots
from gapft_harness.stages.selection.stage import (
    count_budget,
    require_equal_budgets,
    select,
)
from gapft_harness.stages.train.stage import list_training_steps

#: The settings of training that decide sequences and their number; others change no budget.
_PLAN_KEYS = (
    "repetitions", "micro_batch", "accumulation", "update_groups", "max_length", "too_long",
    "supervise_eos", "start_tokens",
)  # fmt: skip

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


def make_selections(view: View, make: Make) -> Mapping[Arm, Budget]:
    """Select every arm's training set, count its budget, and require equal budgets.

    Returns:
        The budget of each group of matched arms, by its first arm; empty if there is nothing to
        train on.

    Raises:
        UserError: a pool too small for the budget, or tokens that differ by more than the recipe
            allows.
        GapftError: matched arms have different budgets.
        NotKnownYet: the states are not made yet.
    """
    recipe = view.recipe
    if not count_slots(recipe.budget.n, _count_states(view, recipe.search.k)):
        return {}
    slots = count_condition_slots(
        recipe, lambda name: _count_states(view, recipe.find_k(name)), _list_own_budgets(view)
    )
    arms = list_arms(recipe)
    sets = make([_build_select_step(view, arm, slots[arm.condition]) for arm in arms])
    view.add(sets)
    budgets = make([_build_budget_step(view, arm) for arm in arms])
    view.add(budgets)
    facts = {
        arm: {
            **sets[layout.selection_path(arm)].facts,
            **budgets[layout.budget_path(arm)].facts,
        }
        for arm in arms
    }
    return require_equal_budgets(recipe, slots, facts)


def _list_own_budgets(view: View) -> list[str]:
    """List the conditions whose selectors have a budget of their own, if they are loaded."""
    entries = {
        name: view.plugins.get("selector", condition.selector)
        for name, condition in view.recipe.conditions.items()
        if view.plugins.has("selector", condition.selector)
    }
    return [n for n, e in entries.items() if e.require_traits(SelectorTraits).budget == "own"]


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


def _build_select_step(view: View, arm: Arm, n: int) -> Step:
    """Build the step that selects an arm's training set.

    Args:
        view: the run. A replicate gets the set of the condition that it repeats.
        arm: the arm.
        n: the slots of a matched selector, without replay.
    """
    recipe = view.recipe
    plugins = view.plugins
    original = recipe.map_replicates().get(arm.condition, arm.condition)
    condition = recipe.conditions[original]
    code = NOT_HERE
    if plugins.has("selector", condition.selector):
        code = plugins.find_code_hash("selector", condition.selector)
    k = recipe.find_k(original)
    return Step(
        layout.selection_path(arm),
        select,
        {
            "selector": condition.selector,
            "params": describe_argument(condition.params),
            "n": n,
            "replay": recipe.budget.replay,
            "seed": recipe.find_selection_seed(arm.seed),
            "k": None if k == recipe.search.k else k,
            "context": recipe.evidence.context,
            "max_gen_toks": view.run.task["decoding"]["max_gen_toks"],
        },
        {
            "problems": view.output(layout.problems_path("pool")),
            "responses": view.output(layout.responses_path("pool")),
            "states": view.output(_find_states(view, k)),
        },
        {"selector": code} if code else {},
        operational={
            "arguments": condition.params,
            "condition": original,
            "plugin_files": view.plugin_files,
        },
        cheap=True,
        verb="select",
    )


def _build_budget_step(view: View, arm: Arm) -> Step:
    """Build the step that counts the budget of an arm's training."""
    settings = view.recipe.resolve_training(arm.condition).model_dump(mode="json")
    return Step(
        layout.budget_path(arm),
        count_budget,
        {key: settings[key] for key in _PLAN_KEYS},
        {"selection": view.output(layout.selection_path(arm))},
        cheap=True,
        verb="budget",
    )


def _find_states(view: View, k: int) -> str:
    return layout.states_path("pool", None if k == view.recipe.search.k else (0, k))


def _count_states(view: View, k: int) -> Mapping[str, int]:
    """Return the numbers of the pool's problems by state, from the first K samples."""
    counts: Mapping[str, int] = view.output(_find_states(view, k)).facts["states"]
    return counts


def list_audit_steps(view: View) -> list[Step]:
    """List the steps that decode the audit with the adapters of the view's arms."""
    return [view.decode(layout.decisions_path(arm), arm, verb="audit") for arm in view.arms()]
