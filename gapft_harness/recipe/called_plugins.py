"""The plugins that a recipe names, looked up before anything expensive starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe

#: What an experiment's own stage may call.
_GENERATES = ("sampler", "verifier")

#: The kinds of plugins that a stage calls by the names in the recipe.
_CALLED: dict[str, tuple[str, ...]] = {
    "search": ("sampler", "verifier", "response rule"),
    "states": ("response rule",),
    "select": ("selector",),
    "train": ("trainer", "tracker"),
    "audit": _GENERATES,
    "report": (),
}


def check_names(
    recipe: Recipe,
    plugins: Plugins,
    stages: Sequence[str] = tuple(_CALLED),
    selected: Collection[str] = (),
) -> None:
    """Looks up every plugin that stages call, before anything expensive starts.

    Args:
        recipe: names them.
        plugins: those that are loaded.
        stages: what is to be run.
        selected: conditions whose training sets are all sealed: no selector has to choose them.

    Raises:
        UserError: a name is unknown.
    """
    plugins.get("executor", recipe.executor.name)
    named: dict[str, Sequence[str | None]] = {
        "sampler": [recipe.model.backend],
        "verifier": [recipe.verifier.name],
        "response rule": [recipe.evidence.keep],
        "selector": [name for name in recipe.conditions if name not in selected],
        "trainer": [recipe.training.trainer],
        "tracker": recipe.trackers,
    }
    for kind in dict.fromkeys(kind for stage in stages for kind in _CALLED.get(stage, _GENERATES)):
        for name in named[kind]:
            if name is not None:
                plugins.get(kind, name)
