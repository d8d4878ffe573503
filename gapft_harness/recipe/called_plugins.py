"""Look up the plugins that a recipe names before anything expensive starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Selector
from gapft_harness.hooks.registration import (
    Registration,
    SelectorTraits,
    find_setting_fault,
)
from gapft_harness.recipe.recipe import Recipe

#: Positional arguments of a selector: the pool, n and the random stream.
_POSITIONAL_COUNT = 3


def check_names(recipe: Recipe, plugins: Plugins) -> None:
    """Look up every plugin that a recipe names, before anything expensive starts.

    Raises:
        UserError: a name is unknown, a selector does not take its parameters, or a plugin lacks a
            feature that the recipe needs.
    """
    names_by_kind: dict[str, Sequence[str | None]] = {
        "executor": [recipe.executor.name],
        "sampler": [recipe.model.backend],
        "verifier": [recipe.verifier.name],
        "response rule": [recipe.evidence.keep],
        "trainer": recipe.list_trainers(),
    }
    for kind, names in names_by_kind.items():
        for name in names:
            if name is not None:
                plugins.get(kind, name)
    plugins.require_start_tokens(recipe.model.backend, recipe.model.start_tokens)
    for condition in recipe.conditions:
        find_selector(recipe, condition, plugins)


def find_selector(
    recipe: Recipe, condition: str, plugins: Plugins
) -> tuple[Selector, Registration]:
    """Return the selector of a condition, bound to its parameters, and its registration.

    Raises:
        UserError: the selector is unknown, or does not take these parameters, or an own n or k.
    """
    settings = recipe.conditions[condition]
    entry = plugins.get("selector", settings.selector)
    if fault := find_setting_fault(
        entry.value, settings.params, positional_count=_POSITIONAL_COUNT
    ):
        raise UserError(
            f"key {f'conditions.{condition}.params'!r}, for selector {settings.selector!r}: {fault}"
        )
    traits = entry.require_traits(SelectorTraits)
    if settings.n is not None and traits.budget == "own":
        raise UserError(
            f"key {f'conditions.{condition}.n'!r}: selector {settings.selector!r} has its own "
            "budget; remove n"
        )
    return partial(entry.value, **settings.params) if settings.params else entry.value, entry
