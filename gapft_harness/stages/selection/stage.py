"""Selection: each condition's selector fills the matched budget (Section 3.3, Equation 7).

Read the pool's states; write ``selections/CONDITION-seedS.parquet`` for every arm. Budgets are
computed and checked here, before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_examples, write_examples
from gapft_harness.stages.selection.budgets import (
    group_by_budget,
    require_matched,
    require_similar_tokens,
)
from gapft_harness.stages.selection.choosing import (
    ConditionPools,
    TrainingSet,
    build_training_set,
    count_condition_slots,
    count_slots,
)
from gapft_harness.training.plan import budget


def list_arms(recipe: Recipe) -> list[Arm]:
    """List every (condition, seed) of a recipe, in the recipe's order."""
    return [Arm(condition, seed) for condition in recipe.conditions for seed in recipe.seeds]


def list_replicate_warnings(recipe: Recipe) -> list[str]:
    """Describe conditions with a ``replicate`` that do not repeat another condition."""
    pairs = recipe.map_replicates()
    return [
        f"conditions.{name}.replicate is {condition.replicate}, but no other condition differs "
        f"from {name} only in this key, so nothing is compared; add one, or remove the key"
        for name, condition in recipe.conditions.items()
        if condition.replicate and name not in {*pairs, *pairs.values()}
    ]


def find_trained_conditions(run: RunDirectory) -> set[str]:
    """Find the conditions that are trained for all seeds of the recipe; they need no selector."""
    trained = run.find_trained_arms()
    return {arm.condition for arm in trained} - {
        arm.condition for arm in list_arms(run.recipe) if arm not in trained
    }


def select_training_sets(run: RunDirectory, plugin_files: Sequence[str] = ()) -> dict[str, Any]:
    """Select every arm's training set under the matched budget.

    A sealed set with a trained adapter must be chosen again identically; if its selector is not
    loaded, the sealed set is used. A set without a trained adapter is replaced if the choice
    changed. A replicate uses the set of the condition that it repeats.

    Args:
        run: the run, with the requested conditions, seeds and budget in its recipe.
        plugin_files: files given by ``--plugin``.

    Returns:
        Facts for the manifest: ``budgets`` by arm, with the number of examples whose generator did
        not report how they ended (``ends_unknown``), and ``n``; both empty or 0 if search
        recovered nothing and the budget is ``recovered``: there is nothing to train on.

    Raises:
        UserError: a pool too small for the budget (the message has the shortfall), supervised
            tokens that differ by more than the recipe allows.
        PluginError: a selector broke its contract, or chooses other examples than those already
            trained on.
    """
    pools = ConditionPools(run)
    n = count_slots(run.recipe.budget.n, pools.read_pool())
    if n == 0:
        return {"budgets": {}, "n": 0}
    slots = count_condition_slots(run.recipe, pools.read_pool)
    plugins = load_plugins(plugin_files)
    manifest = run.manifest()
    trained = {} if run.changes.selection_changes else run.find_trained_arms()

    def choose_for_arm(arm: Arm) -> TrainingSet:
        budget_entry, condition = (
            manifest["budgets"].get(arm.name),
            run.recipe.conditions[arm.condition],
        )
        n, replay = slots[arm.condition], run.recipe.budget.replay
        if budget_entry and arm in trained and not plugins.has("selector", condition.selector):
            return _read_sealed_set(run, arm, budget_entry)
        selector, entry = find_selector(run.recipe, arm.condition, plugins)
        drawing = replace(arm, seed=run.recipe.find_selection_seed(arm.seed))
        return build_training_set(
            selector, entry, pools.read_pool(arm.condition), n, replay, drawing
        )

    originals, sets = run.recipe.map_replicates(), dict[Arm, TrainingSet]()
    for arm in list_arms(run.recipe):
        if arm.condition not in originals:
            sets[arm] = choose_for_arm(arm)
    chosen_sets = {
        arm: sets[replace(arm, condition=originals.get(arm.condition, arm.condition))]
        for arm in list_arms(run.recipe)
    }
    budgets = {
        arm: budget(training_set.examples, run.recipe.resolve_training(arm.condition))
        for arm, training_set in chosen_sets.items()
    }
    matched_budgets = {arm: b for arm, b in budgets.items() if chosen_sets[arm].is_matched}
    for group in group_by_budget(matched_budgets, slots, run.recipe):
        require_matched(group)
        require_similar_tokens(group, run.recipe.budget)
    paths = {arm: run.path / layout.selection_path(arm) for arm in chosen_sets}
    sealed_arms = {arm for arm, path in paths.items() if path.exists()}
    for arm in sealed_arms.intersection(trained):
        if read_examples(paths[arm]) != chosen_sets[arm].examples:
            raise _changed_selection_error(arm, paths[arm])
    stale_arms = [
        arm
        for arm in paths
        if arm in sealed_arms
        and arm not in trained
        and (read_examples(paths[arm]), read_facts(paths[arm]))
        != (chosen_sets[arm].examples, asdict(budgets[arm]))
    ]
    run.unseal(layout.selection_path(arm) for arm in stale_arms)
    for arm, training_set in chosen_sets.items():
        if not paths[arm].exists():
            write_examples(paths[arm], training_set.examples, budgets[arm])
    return {
        "n": n,
        "budgets": {
            arm.name: {
                **asdict(b),
                **chosen_sets[arm].build_facts(),
                **build_condition_facts(run.recipe, arm),
            }
            for arm, b in budgets.items()
        },
    }


def build_condition_facts(recipe: Recipe, arm: Arm) -> dict[str, Any]:
    """Return the condition's settings for the manifest's budget; empty if the name says all."""
    settings = recipe.conditions[arm.condition].dump_settings(arm.condition)
    return {"condition": settings} if settings else {}


def _read_sealed_set(run: RunDirectory, arm: Arm, budget_entry: Mapping[str, Any]) -> TrainingSet:
    examples = read_examples(run.sealed(layout.selection_path(arm)))
    return TrainingSet(
        examples,
        budget_entry.get("matched", True),
        budget_entry.get("ends_unknown", 0),
    )


def _changed_selection_error(arm: Arm, path: Path) -> PluginError:
    return PluginError(
        f"{path}: sealed, but condition {arm.condition!r} now chooses other examples: its "
        "selector or the version of this package changed. "
        "Start a new run directory, or register the changed selector under a new name"
    )
