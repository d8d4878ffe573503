"""Matched budgets B = (N, L, J), which make a comparison fair; checked before training.

Equation 7 and, for supervised and processed tokens, the tolerance of the paper's MATH recipe
(Table 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Arm, Budget, Evidence, Pool
from gapft_harness.core.streams import Stream
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import BudgetChoice
from gapft_harness.training.plan import count_steps


def set_replay_aside(pool: Pool, count: int, seed: int) -> tuple[list[Evidence], Pool]:
    """Take the replay that all matched conditions of one seed share out of a pool.

    The draw is that of the ``replay`` selector: stream ``select/replay`` of the seed, so that a
    smaller count gives a prefix of a larger one's draw.

    Args:
        pool: the pool.
        count: g, the number of solved problems to take (``budget.replay``).
        seed: the training seed.

    Returns:
        The g solved problems in drawn order, and the pool without them.

    Raises:
        UserError: fewer than g problems are solved.
    """
    if count > len(pool.solved):
        raise UserError(
            f"budget.replay asks for {count} solved problems, but only {len(pool.solved)} of the "
            f"pool are solved (state G): {count - len(pool.solved)} too few. Lower budget.replay, "
            "or enlarge the pool"
        )
    replay = pool.draw(pool.solved, count, Stream(seed, "select/replay"))
    replay_ids = {evidence.problem_id for evidence in replay}
    remaining = tuple(evidence for evidence in pool.solved if evidence.problem_id not in replay_ids)
    return replay, Pool(solved=remaining, recovered=pool.recovered, missed=pool.missed)


def group_by_budget(
    values_by_arm: Mapping[Arm, Any],
    slots: Mapping[str, int],
    recipe: Recipe,
) -> list[dict[Arm, Any]]:
    """Group the values of arms by comparison group.

    Args:
        values_by_arm: a value for each arm.
        slots: n by condition.
        recipe: the recipe; a condition with its own settings is grouped with those that have the
            same settings.
    """
    own_settings_by_condition = find_own_settings(recipe.model_dump(mode="json"))
    keys = {
        arm: (slots[arm.condition], own_settings_by_condition[arm.condition])
        for arm in values_by_arm
    }
    groups: list[dict[Arm, Any]] = []
    for arm, value in values_by_arm.items():
        group = next((g for g in groups if keys[next(iter(g))] == keys[arm]), None)
        if group is None:
            groups.append(group := {})
        group[arm] = value
    return groups


def require_matched(budgets: Mapping[Arm, Budget]) -> None:
    """Require that the arms of one group have exactly the same n, N and J (Equation 7).

    Raises:
        GapftError: they differ; the message names two arms.
    """
    first, *others = budgets
    for arm in others:
        for key in ("n", "repetitions", "exposures", "steps"):
            a = getattr(budgets[first], key)
            b = getattr(budgets[arm], key)
            if a != b:
                raise GapftError(
                    f"matched arms {first.name} and {arm.name} differ in {key}: {a} and {b}"
                )


#: Limited counts of a budget: field, key of the recipe, kind of token, and what has these tokens.
_TOKEN_LIMITS = (
    ("supervised_tokens", "token_tolerance", "supervised", "responses"),
    ("tokens", "position_tolerance", "processed", "prompts and responses"),
)


def require_similar_tokens(budgets: Mapping[Arm, Budget], choice: BudgetChoice) -> None:
    """Require that the tokens of one seed's arms of a group differ little.

    Args:
        budgets: the arms' budgets; tokens count over all R exposures.
        choice: the recipe's budget. ``token_tolerance`` is the largest allowed difference of two
            arms of a seed in supervised tokens, as a share of the larger, and
            ``position_tolerance`` that in processed tokens; None for no limit.

    Raises:
        UserError: a difference is larger; the message names the arms with the fewest and the most
            tokens of the seed.
    """
    for field, key, kind, parts in _TOKEN_LIMITS:
        tolerance = getattr(choice, key)
        if tolerance is None:
            continue
        for seed in dict.fromkeys(arm.seed for arm in budgets):
            tokens = {a: getattr(b, field) for a, b in budgets.items() if a.seed == seed}
            least = min(tokens, key=tokens.__getitem__)
            most = max(tokens, key=tokens.__getitem__)
            share = (tokens[most] - tokens[least]) / tokens[most]
            if share > tolerance:
                raise UserError(
                    f"arms {least.name} and {most.name} differ too much in {kind} tokens: "
                    f"{tokens[least]} and {tokens[most]}, {share:.2%} of the larger, and "
                    f"budget.{key} is {tolerance:.2%}. Choose conditions or a budget.n with "
                    f"{parts} of nearer lengths, or raise budget.{key}"
                )


def describe_planned_budget(recipe: Recipe, condition: str | None = None) -> tuple[str, str, str]:
    """Describe the slots, exposures and steps of a matched condition, as far as they are known.

    Args:
        recipe: the recipe.
        condition: a condition with its own n or settings; None for any other.
    """
    n = recipe.budget.n if condition is None else recipe.find_slots(condition)
    replay = recipe.budget.replay
    training = recipe.resolve_training(condition)
    symbols = {"recovered": "|E_S,K|", "verified": "|E_G| + |E_S,K|"}
    replay_text = f" + {replay} replay" if replay else ""
    if isinstance(n, int):
        exposures = training.repetitions * (n + replay)
        steps = count_steps(exposures, training)
        return f"n = {n}{replay_text}", f"N = {exposures}", f"J = {steps}"
    batch = training.micro_batch * training.accumulation
    window = (
        ""
        if condition is None
        else f", K = {recipe.find_k(condition)}" * bool(recipe.conditions[condition].k)
    )
    return (
        f"n = {symbols[str(n)]} of the pool{window}{replay_text}, known after search",
        f"N = {training.repetitions} (n + {replay})" if replay else f"N = {training.repetitions} n",
        f"J = {training.update_groups or f'ceil(N / {batch})'}",
    )
