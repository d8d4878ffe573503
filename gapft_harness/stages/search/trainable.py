"""Check from prompts and golds, before the search, whether the pool can be trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import SamplerTraits, SelectorTraits
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings

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
    for name, condition in recipe.conditions.items():
        settings = recipe.resolve_training(name)
        selector = plugins.get("selector", condition.selector).require_traits(SelectorTraits)
        # truncation would make two sets of borrowed targets differ
        must_fit = settings.too_long == "refuse" or selector.responses == "borrowed"
        needed = response if must_fit else 1
        extra_start = 0  # start tokens that the generator's prompt does not have
        if settings.start_tokens is not None and recipe.model.start_tokens is not None:
            extra_start = settings.start_tokens - recipe.model.start_tokens
        totals = [tokens + extra_start + needed for tokens in lengths]
        longer = [
            (total, problem.id)
            for total, problem in zip(totals, pool, strict=True)
            if total > settings.max_length
        ]
        if longer:
            limit = settings.max_length
            raise _too_long_error(longer, len(pool), needed, limit, must_fit, name)


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
