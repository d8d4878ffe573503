"""The plugins that a recipe names, looked up before anything expensive starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import Plugins, Registered
from gapft_harness.hooks.protocols import Selector
from gapft_harness.hooks.registered import SamplerTraits, SelectorTraits, setting_fault
from gapft_harness.recipe.recipe import Recipe

#: What an experiment's own stage may call.
_GENERATES = ("sampler", "verifier")

#: The kinds of plugins that a stage calls by the names in the recipe.
_CALLED: dict[str, tuple[str, ...]] = {
    "search": ("sampler", "verifier", "response rule"),
    "states": ("response rule",),
    "select": (),
    "train": ("trainer", "tracker"),
    "audit": _GENERATES,
    "report": (),
}

#: The pool, n and the random stream.
_SELECTS_FROM = 3


def check_names(
    recipe: Recipe,
    plugins: Plugins,
    stages: Sequence[str] = tuple(_CALLED),
    selected: Collection[str] = (),
) -> None:
    """Looks up every plugin that stages call, before anything expensive starts.

    Args:
        selected: conditions whose training sets are all sealed: no selector has to choose them.

    Raises:
        UserError: a name is unknown, a selector does not take its parameters, or a plugin cannot
            do what the recipe asks for.
    """
    plugins.get("executor", recipe.executor.name)
    named: dict[str, Sequence[str | None]] = {
        "sampler": [recipe.model.backend],
        "verifier": [recipe.verifier.name],
        "response rule": [recipe.evidence.keep],
        "trainer": recipe.trainers(),
        "tracker": recipe.trackers,
    }
    if "select" in stages:
        for condition in recipe.conditions:
            if condition not in selected:
                find_selector(recipe, condition, plugins)
    for kind in dict.fromkeys(kind for stage in stages for kind in _CALLED.get(stage, _GENERATES)):
        for name in named[kind]:
            if name is not None:
                plugins.get(kind, name)
        if kind == "sampler":
            plugins.require_start_tokens(recipe.model.backend, recipe.model.start_tokens)
            if "scaling" in recipe.experiments:
                _check_generates(recipe, plugins)


def _check_generates(recipe: Recipe, plugins: Plugins) -> None:
    backend = recipe.model.backend
    if not plugins.get("sampler", backend).declared(SamplerTraits).generates:
        raise UserError(
            f"recipe {recipe.name}: key 'experiments.scaling': needs a backend that generates: the "
            f"responses of {backend!r} are of each arm's adapter as it was trained, "
            "and of no other scale"
        )


def find_selector(recipe: Recipe, condition: str, plugins: Plugins) -> tuple[Selector, Registered]:
    """The selector of a condition, which has its parameters, and what was registered.

    Raises:
        UserError: there is none of that name, or it does not take these parameters, or no n or k.
    """
    chosen = recipe.conditions[condition]
    select, entry = plugins.selector(chosen.selector)
    if fault := setting_fault(entry.value, chosen.params, by_position=_SELECTS_FROM):
        raise UserError(
            f"key {f'conditions.{condition}.params'!r}, for selector {chosen.selector!r}: {fault}"
        )
    traits = entry.declared(SelectorTraits)
    required = ("run", "condition") if traits.foreign else ()
    for key in (*required, *traits.files):
        value = chosen.params.get(key, None if key in required else "")
        if not isinstance(value, str):
            raise UserError(
                f"key {f'conditions.{condition}.params.{key}'!r}: expected a text, found {value!r}"
            )
    if chosen.k is not None and traits.foreign:
        raise UserError(
            f"key {f'conditions.{condition}.k'!r}: selector {chosen.selector!r} gives the training "
            "set of another run, which has a K of its own; leave k out"
        )
    if chosen.n is not None and traits.own_budget:
        raise UserError(
            f"key {f'conditions.{condition}.n'!r}: selector {chosen.selector!r} has a budget of "
            "its own; leave n out"
        )
    return partial(select, **chosen.params) if chosen.params else select, entry
