"""Online training: warnings on its reward before training, and verification afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import TrainerTraits
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_states
from gapft_harness.stages.integrity.differences import compare_values
from gapft_harness.training.groups import (
    GROUPS,
    find_group_faults,
    group_facts,
    plan_prompts,
    read_groups,
)
from gapft_harness.training.plan import budget


def list_reward_warnings(recipe: Recipe, task: Mapping[str, Any], plugins: Plugins) -> list[str]:
    """Warn of rewards by another verifier than the audit's.

    Raises:
        UserError: a permissive reward is requested, but the task's verifier declares none; or
            the trainer grpo is used for episodes of several attempts.
    """
    grpo_conditions = [
        name for name in recipe.conditions if recipe.resolve_training(name).trainer == "grpo"
    ]
    if grpo_conditions and (attempts := task["episode"]["attempts"]) > 1:
        raise UserError(
            f"the trainer grpo of {', '.join(grpo_conditions)} can reward only the first attempt, "
            f"but the task's episode.attempts is {attempts}; set it to 1, or use the trainer lora"
        )
    name, params = task["verifier"], task["verifier_params"]
    permissive_conditions = [
        condition
        for condition in recipe.conditions
        if recipe.resolve_training(condition).grpo.reward == "permissive"
        and _is_online(recipe, condition, plugins)
    ]
    if not permissive_conditions:
        return []
    rule = plugins.find_other_verifier(name, params)
    if rule is None or not rule.permissive:
        raise UserError(
            f"training.grpo.reward of {', '.join(permissive_conditions)} is permissive, but the "
            f"verifier {name} declares no permissive rule for {json.dumps(dict(params))}; set the "
            "reward to task"
        )
    return [
        f"the reward of {', '.join(permissive_conditions)} is {rule.name} "
        f"{json.dumps(dict(rule.params))}, but the audit's verifier is {name} "
        f"{json.dumps(dict(params))}: responses may drift to forms that the reward accepts and the "
        "audit does not"
    ]


def _is_online(recipe: Recipe, condition: str, plugins: Plugins) -> bool:
    trainer = recipe.resolve_training(condition).trainer
    return plugins.get("trainer", trainer).require_traits(TrainerTraits).needs_problems


def check_groups(
    run: RunDirectory, arm: Arm, examples: Sequence[Example], facts: Mapping[str, Any]
) -> Iterable[str]:
    """Verify that an arm's recorded groups follow from plan, states and rewards.

    Rewards and tokens are not recomputed.

    Args:
        run: the run.
        arm: the arm.
        examples: its training set.
        facts: the facts of its ``training.json``.
    """
    folder = run.path / layout.adapter_path(arm)
    if (folder / GROUPS).is_file():
        yield from _check_groups(run, arm, examples, facts)


def _check_groups(
    run: RunDirectory, arm: Arm, examples: Sequence[Example], facts: Mapping[str, Any]
) -> Iterator[str]:
    settings, where = run.recipe.resolve_training(arm.condition), layout.adapter_path(arm)
    groups = list(read_groups(run.path / where))
    table = run.path / layout.states_path("pool")
    states = {row.problem_id: row.state for row in read_states(table)}
    updates = budget(examples, settings).steps
    plan = plan_prompts(sorted(states), updates, settings.grpo, arm.seed)
    yield from find_group_faults(f"{where}/{GROUPS}", groups, plan, states, settings.grpo)
    expected = {"updates": updates, **group_facts(groups)}
    yield from compare_values(f"{where}/training.json", facts, expected)
    log = f"{where}/updates.jsonl"
    lines = (run.path / log).read_text("utf-8").splitlines()
    if [json.loads(line)["update"] for line in lines] != [*range(1, updates + 1)]:
        yield f"{log}: does not have the updates 1 to {updates}, each once"
