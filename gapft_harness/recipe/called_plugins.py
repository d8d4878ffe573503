"""Look up the plugins that a recipe names before anything expensive starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Selector
from gapft_harness.hooks.registration import (
    Registration,
    SamplerTraits,
    SelectorTraits,
    find_setting_fault,
)
from gapft_harness.recipe.recipe import Recipe

#: Kinds that the stage of an experiment may call.
_EXPERIMENT_KINDS = ("sampler", "verifier")

#: Kinds of plugins that each stage calls by their names in the recipe.
_KINDS_BY_STAGE: dict[str, tuple[str, ...]] = {
    "search": ("sampler", "verifier", "response rule"),
    "states": ("response rule",),
    "select": (),
    "train": ("trainer",),
    "audit": _EXPERIMENT_KINDS,
    "report": (),
}

#: Positional arguments of a selector: the pool, n and the random stream.
_POSITIONAL_COUNT = 3


def check_names(
    recipe: Recipe,
    plugins: Plugins,
    stages: Sequence[str] = tuple(_KINDS_BY_STAGE),
) -> None:
    """Look up every plugin that the stages call, before anything expensive starts.

    Raises:
        UserError: a name is unknown, a selector does not take its parameters, or a plugin lacks a
            feature that the recipe needs.
    """
    plugins.get("executor", recipe.executor.name)
    names_by_kind: dict[str, Sequence[str | None]] = {
        "sampler": [recipe.model.backend],
        "verifier": [recipe.verifier.name],
        "response rule": [recipe.evidence.keep],
        "trainer": recipe.list_trainers(),
    }
    if "select" in stages:
        for condition in recipe.conditions:
            find_selector(recipe, condition, plugins)
    for kind in dict.fromkeys(
        kind for stage in stages for kind in _KINDS_BY_STAGE.get(stage, _EXPERIMENT_KINDS)
    ):
        for name in names_by_kind[kind]:
            if name is not None:
                plugins.get(kind, name)
        if kind == "sampler":
            plugins.require_start_tokens(recipe.model.backend, recipe.model.start_tokens)
            if "scaling" in recipe.experiments:
                _require_generating_sampler(recipe, plugins)


def _require_generating_sampler(recipe: Recipe, plugins: Plugins) -> None:
    backend = recipe.model.backend
    if not plugins.get("sampler", backend).require_traits(SamplerTraits).generates:
        raise UserError(
            f"recipe {recipe.name}: key 'experiments.scaling': needs a backend that generates, but "
            f"{backend!r} replays responses of each arm's adapter as it was trained, which has no "
            "other scale; use another backend, or remove the experiment"
        )


def find_selector(
    recipe: Recipe, condition: str, plugins: Plugins
) -> tuple[Selector, Registration]:
    """Return the selector of a condition, bound to its parameters, and its registration.

    Raises:
        UserError: the selector is unknown, does not take these parameters, or has its own budget
            and the condition sets n.
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
