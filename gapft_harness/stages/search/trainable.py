"""Check from prompts and golds, before the search, whether the pool can be trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import SamplerTraits, SelectorTraits
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.recipe.sections import Training

#: Maximum number of problems that a message names.
_MAX_NAMED = 3


class NotTrainable(UserError):
    """A pool with problems that a condition cannot be trained on."""


def check_trainable(
    recipe: Recipe, plugins: Plugins, pool: Sequence[Problem], task: Mapping[str, Any]
) -> None:
    """Refuse before the search what selection or training would refuse after it.

    Args:
        recipe: the recipe; the selectors and ``training`` sections of its conditions apply.
        plugins: the loaded plugins.
        pool: the problems to search.
        task: the task's facts.

    Raises:
        NotTrainable: a gold answer that a selector cannot use, or a prompt that leaves too little
            of ``training.max_length``.
        UserError: the model has no tokenizer.
    """
    check_golds(recipe, plugins, pool)
    check_lengths(recipe, plugins, pool, task)


def check_golds(recipe: Recipe, plugins: Plugins, pool: Sequence[Problem]) -> None:
    """Refuse a gold answer that a condition's selector cannot use.

    Raises:
        NotTrainable: there is one; the message names the problem and the fault.
    """
    for name, condition in recipe.conditions.items():
        check = (
            plugins.get("selector", condition.selector).require_traits(SelectorTraits).check_gold
        )
        for problem in pool if check is not None else ():
            if check is not None and (fault := check(problem.gold)):
                raise NotTrainable(
                    f"condition {name!r}: the gold answer of problem {problem.id} {fault}"
                )


def check_lengths(
    recipe: Recipe, plugins: Plugins, pool: Sequence[Problem], task: Mapping[str, Any]
) -> None:
    """Refuse a pool with a problem that training could refuse after the search.

    A response has up to ``max_gen_toks`` tokens; in an episode whose conversation is trained on, up
    to as many in each attempt, feedback not counted. Nothing is checked if the sampler has no
    tokenizer.

    Raises:
        NotTrainable: there is such a problem; the message has the number of problems, the longest
            and the remedies.
        UserError: the model has no tokenizer.
    """
    count_tokens = (
        plugins.get("sampler", recipe.model.backend).require_traits(SamplerTraits).prompt_lengths
    )
    if count_tokens is None:
        return
    lengths = count_tokens(build_sampler_settings(recipe), pool)
    if lengths is None:
        return
    conversation = recipe.evidence.context == "conversation"
    attempts = task["episode"]["attempts"] if conversation else 1
    response = task["decoding"]["max_gen_toks"] * attempts
    limits: dict[tuple[int, bool, int], str] = {}
    for name in recipe.conditions:
        settings = recipe.resolve_training(name)
        limits.setdefault(
            (
                settings.max_length,
                _requires_whole_responses(recipe, name, plugins),
                _count_extra_tokens(recipe, settings),
            ),
            name,
        )
    for (limit, must_fit, shift), name in limits.items():
        needed = response if must_fit else 1
        longer = [
            (tokens + shift + needed, problem.id)
            for tokens, problem in zip(lengths, pool, strict=True)
            if tokens + shift + needed > limit
        ]
        if longer:
            raise _too_long_error(longer, len(pool), needed, limit, must_fit, name)


def _requires_whole_responses(recipe: Recipe, condition: str, plugins: Plugins) -> bool:
    """Return whether a condition's responses may not be truncated.

    They may not if training refuses truncation, or if its targets are borrowed from other problems:
    truncation would make two sets of targets differ.
    """
    selector = plugins.get("selector", recipe.conditions[condition].selector)
    can_borrow = selector.require_traits(SelectorTraits).responses == "borrowed"
    return can_borrow or recipe.resolve_training(condition).too_long == "refuse"


def _count_extra_tokens(recipe: Recipe, settings: Training) -> int:
    """Count the start tokens that a training prompt has in addition to the generator's."""
    training_tokens = settings.start_tokens
    generation_tokens = recipe.model.start_tokens
    return (
        0
        if training_tokens is None or generation_tokens is None
        else training_tokens - generation_tokens
    )


def _too_long_error(
    longer: Sequence[tuple[int, str]],
    pool: int,
    needed: int,
    limit: int,
    must_fit: bool,
    condition: str,
) -> NotTrainable:
    max_tokens = max(longer)[0]
    names = ", ".join(problem for _, problem in sorted(longer, reverse=True)[:_MAX_NAMED])
    more = ", ..." if len(longer) > _MAX_NAMED else ""
    remedies = [f"training.max_length: {max_tokens} or more"]
    if must_fit:
        remedies.append("a smaller search.max_gen_toks")
        remedies.append("training.too_long: truncate, to truncate responses")
    else:
        remedies.append("a pool without these problems")
    response_text = f"a response of up to {needed} tokens" if must_fit else "any response"
    return NotTrainable(
        f"pool: {len(longer)} of {pool} problems ({names}{more}) may not fit into "
        f"training.max_length, {limit} tokens in condition {condition!r}: prompt and "
        f"{response_text} have up to {max_tokens}. This would stop the run after the search; set "
        f"{', or '.join(remedies)}"
    )
