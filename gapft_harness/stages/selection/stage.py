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
from gapft_harness.hooks.registered import SelectorTraits
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_examples, write_examples
from gapft_harness.stages.selection.budgets import enforce_matched, enforce_tokens, in_groups
from gapft_harness.stages.selection.choosing import (
    Pools,
    Selected,
    choose_set,
    slots_by_condition,
    slots_of,
)
from gapft_harness.stages.selection.other_runs import OtherRuns, is_copied
from gapft_harness.training.plan import budget


def arms(recipe: Recipe) -> list[Arm]:
    """List every (condition, seed) of a recipe, in the recipe's order."""
    return [Arm(condition, seed) for condition in recipe.conditions for seed in recipe.seeds]


def replicate_warnings(recipe: Recipe) -> list[str]:
    """Describe conditions with a ``replicate`` that do not repeat another condition."""
    pairs = recipe.replicates()
    return [
        f"conditions.{name}.replicate is {condition.replicate}, but no other condition differs "
        f"from {name} only in this key, so nothing is compared; add one, or remove the key"
        for name, condition in recipe.conditions.items()
        if condition.replicate and name not in {*pairs, *pairs.values()}
    ]


def trained_conditions(run: RunDirectory) -> set[str]:
    """Find the conditions that are trained for all seeds of the recipe; they need no selector."""
    trained = run.trained_arms()
    return {arm.condition for arm in trained} - {
        arm.condition for arm in arms(run.recipe) if arm not in trained
    }


def select(run: RunDirectory, plugin_files: Sequence[str] = ()) -> dict[str, Any]:
    """Select every arm's training set under the matched budget.

    A sealed set with a trained adapter must be chosen again identically; if its selector is not
    loaded, the sealed set is used. A set without a trained adapter is replaced if the choice
    changed. A sealed set of another run stays. A replicate uses the set of the condition that it
    repeats.

    Args:
        run: the run, with the requested conditions, seeds and budget in its recipe.
        plugin_files: files given by ``--plugin``.

    Returns:
        Facts for the manifest: ``budgets`` by arm, with the number of examples whose generator did
        not report how they ended (``ends_unknown``), and ``n``; both empty or 0 if search
        recovered nothing and the budget is ``recovered``: there is nothing to train on.

    Raises:
        UserError: a pool too small for the budget (the message has the shortfall), supervised
            tokens that differ by more than the recipe allows, or a set of another run that cannot
            be used.
        PluginError: a selector broke its contract, or chooses other examples than those already
            trained on.
    """
    pools = Pools(run)
    n = slots_of(run.recipe.budget.n, pools.of())
    if n == 0:
        return {"budgets": {}, "n": 0}
    slots = slots_by_condition(run.recipe, pools.of)
    plugins = load_plugins(plugin_files)
    manifest, others = run.manifest(), OtherRuns(run, plugins)
    trained = {} if run.changes.of_selection else run.trained_arms()

    def choose(arm: Arm) -> Selected:
        said, by = manifest["budgets"].get(arm.name), run.recipe.conditions[arm.condition]
        n, replay = slots[arm.condition], run.recipe.budget.replay
        if said and arm in trained and not plugins.has("selector", by.selector):
            return _sealed(run, arm, said)
        if said and is_copied(run, manifest, arm):
            copy = _sealed(run, arm, said)
            if not copy.matched or len(copy.examples) == n + replay:
                return copy  # otherwise its selector reports the number of slots
        selector, entry = find_selector(run.recipe, arm.condition, plugins)
        source = others.read(arm) if entry.declared(SelectorTraits).foreign else None
        return choose_set(selector, entry, pools.of(arm.condition), n, replay, arm, source)

    originals, sets = run.recipe.replicates(), dict[Arm, Selected]()
    for arm in arms(run.recipe):
        if arm.condition not in originals:
            sets[arm] = choose(arm)
    chosen = {
        arm: sets[replace(arm, condition=originals.get(arm.condition, arm.condition))]
        for arm in arms(run.recipe)
    }
    budgets = {
        arm: budget(found.examples, run.recipe.training_of(arm.condition))
        for arm, found in chosen.items()
    }
    matched = {arm: b for arm, b in budgets.items() if chosen[arm].matched}
    origins = {arm.condition: of.taken for arm, of in chosen.items() if of.taken is not None}
    for group in in_groups(matched, slots, run.recipe, origins):
        enforce_matched(group)
        enforce_tokens(group, run.recipe.budget.token_tolerance)
    paths = {arm: run.path / layout.selection(arm) for arm in chosen}
    there = {arm for arm, path in paths.items() if path.exists()}
    for arm in there.intersection(trained):
        if read_examples(paths[arm]) != chosen[arm].examples:
            raise _other_examples(arm, paths[arm])
    stale = [
        arm
        for arm in paths
        if arm in there
        and arm not in trained
        and (read_examples(paths[arm]), read_facts(paths[arm]))
        != (chosen[arm].examples, asdict(budgets[arm]))
    ]
    run.unseal(layout.selection(arm) for arm in stale)
    for arm, found in chosen.items():
        if not paths[arm].exists():
            write_examples(paths[arm], found.examples, budgets[arm])
    return {
        "n": n,
        "budgets": {
            arm.name: {**asdict(b), **chosen[arm].said(), **chosen_by(run.recipe, arm)}
            for arm, b in budgets.items()
        },
    }


def chosen_by(recipe: Recipe, arm: Arm) -> dict[str, Any]:
    """Return the condition's settings for the manifest's budget; empty if the name says all."""
    said = recipe.conditions[arm.condition].said(arm.condition)
    return {"condition": said} if said else {}


def _sealed(run: RunDirectory, arm: Arm, said: Mapping[str, Any]) -> Selected:
    examples = read_examples(run.sealed(layout.selection(arm)))
    return Selected(
        examples, said.get("matched", True), said.get("ends_unknown", 0), said.get("taken")
    )


def _other_examples(arm: Arm, path: Path) -> PluginError:
    return PluginError(
        f"{path}: sealed, but condition {arm.condition!r} now chooses other examples: its "
        "selector or the version of this package changed. "
        "Start a new run directory, or register the changed selector under a new name"
    )
