"""Online training: warnings on its reward before training, and verification afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import TrainerTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_states
from gapft_harness.stages.integrity.differences import unequal
from gapft_harness.training.groups import (
    GROUPS,
    group_facts,
    group_faults,
    prompt_plan,
    read_groups,
)
from gapft_harness.training.plan import budget


def reward_warnings(recipe: Recipe, task: Mapping[str, Any], plugins: Plugins) -> list[str]:
    """Warn of rewards by another verifier than the audit's.

    Raises:
        UserError: a permissive reward is requested, but the task's verifier declares none; or
            the trainer grpo is used for episodes of several attempts.
    """
    grpo = [name for name in recipe.conditions if recipe.training_of(name).trainer == "grpo"]
    if grpo and (attempts := task["episode"]["attempts"]) > 1:
        raise UserError(
            f"the trainer grpo of {', '.join(grpo)} can reward only the first attempt, but the "
            f"task's episode.attempts is {attempts}; set it to 1, or use the trainer lora"
        )
    name, params = task["verifier"], task["verifier_params"]
    asked = [
        condition
        for condition in recipe.conditions
        if recipe.training_of(condition).grpo.reward == "permissive"
        and _is_online(recipe, condition, plugins)
    ]
    if not asked:
        return []
    other = plugins.other_rule(name, params)
    if other is None or not other.permissive:
        raise UserError(
            f"training.grpo.reward of {', '.join(asked)} is permissive, but the verifier {name} "
            f"declares no permissive rule for {json.dumps(dict(params))}; set the reward to task"
        )
    return [
        f"the reward of {', '.join(asked)} is {other.name} {json.dumps(dict(other.params))}, but "
        f"the audit's verifier is {name} {json.dumps(dict(params))}: responses may drift to forms "
        "that the reward accepts and the audit does not"
    ]


def _is_online(recipe: Recipe, condition: str, plugins: Plugins) -> bool:
    trainer = recipe.training_of(condition).trainer
    return plugins.get("trainer", trainer).declared(TrainerTraits).needs_problems


def check_groups(
    run: RunDirectory, arm: Arm, examples: Sequence[Example], facts: Mapping[str, Any]
) -> Iterable[str]:
    """Verify that an arm's sealed groups follow from plan, states and rewards.

    Rewards and tokens are not recomputed.

    Args:
        run: the run.
        arm: the arm.
        examples: its training set.
        facts: the facts of its ``training.json``.
    """
    folder = run.path / layout.adapter(arm)
    if (folder / GROUPS).is_file():
        yield from _check_groups(run, arm, examples, facts)


def _check_groups(
    run: RunDirectory, arm: Arm, examples: Sequence[Example], facts: Mapping[str, Any]
) -> Iterator[str]:
    settings, where = run.recipe.training_of(arm.condition), layout.adapter(arm)
    groups = list(read_groups(run.path / where))
    table = run.path / layout.states("pool")
    states = {of.problem_id: of.state for of in read_states(table)}
    updates = budget(examples, settings).steps
    plan = prompt_plan(sorted(states), updates, settings.grpo, arm.seed)
    yield from group_faults(f"{where}/{GROUPS}", groups, plan, states, settings.grpo)
    right = {"updates": updates, **group_facts(groups)}
    yield from unequal(f"{where}/training.json", facts, right)
