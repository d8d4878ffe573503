"""Compare a recipe with the recipe of a run, and extend it with what the run has trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import changes, describe_change
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest, TaskFacts, new_manifest

#: Folders that exist before training; sealed files in any other folder depend on adapters.
_BEFORE = ("pool", "audit", "calibration", layout.SELECTIONS)

#: Sections of a recipe that do not affect results: their changes are not reported.
_ASIDE = ("executor", "trackers", "notes", "description", "paper", "model")


@dataclass(frozen=True, slots=True)
class Changes:
    """Settings that differ between a run's recipe and a new one, each with both values.

    Attributes:
        of_search: settings that the whole run depends on.
        of_selection: settings that only training sets and the files made from them depend on.
    """

    of_search: tuple[str, ...] = ()
    of_selection: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.of_search or self.of_selection)

    @property
    def lines(self) -> tuple[str, ...]:
        """All changes."""
        return self.of_search + self.of_selection


def came_of_adapters(relative: str) -> bool:
    """Return whether a sealed file depends on trained adapters.

    Args:
        relative: its path in the run directory.
    """
    return layout.folder_of(relative) not in _BEFORE


def find_changes(
    path: Path,
    earlier: Recipe,
    recipe: Recipe,
    trained: Mapping[Arm, Condition],
    plugins: Plugins | None = None,
    manifest: Manifest | None = None,
) -> Changes:
    """Compare a recipe with the recipe of a run.

    Args:
        path: the run directory.
        earlier: the run's recipe.
        recipe: the new recipe.
        trained: the arms with sealed files that depend on an adapter, each with the condition
            that chose its training set.
        plugins: as for ``Recipe.build_search_identity``.
        manifest: the run's manifest; where the earlier recipe left a key unset, the task's value
            is compared.

    Raises:
        UserError: the recipes have different names.
    """
    if earlier.name != recipe.name:
        raise UserError(
            f"run directory {path}: contains a run of the recipe {earlier.name}, not "
            f"{recipe.name}; use another --run-dir"
        )
    recipe, known = _as_begun(earlier, recipe), manifest or new_manifest(earlier)
    before, now = earlier.identity(plugins), recipe.identity(plugins)
    search = differences(_told_by_task(before, now, known["task"]), now)
    if earlier.evidence.keep is not None and recipe.evidence.keep is None:
        search.append(describe_change("evidence.keep", earlier.evidence.keep, None))
    for name, audit in known.get("audits", {}).items():
        if (choice := recipe.audits.get(name)) is not None:
            search += differences(audit["said"], choice.said(), f"audits.{name}")
    selection = differences(earlier.trained_by(), recipe.trained_by())
    chosen = dict(earlier.conditions) | {arm.condition: of for arm, of in trained.items()}
    chosen = {name: of for name, of in chosen.items() if name in recipe.conditions}
    own = differences(
        {name: earlier.settled(of) for name, of in chosen.items()},
        {name: recipe.settled(recipe.conditions[name]) for name in chosen},
        "conditions",
    )
    of_all = [*selection, *(line.removeprefix("search.") for line in search)]
    implied = {f"conditions.{name}.{line}" for name in chosen for line in of_all}
    selection += [line for line in own if line not in implied]
    return Changes(tuple(search), tuple(selection))


def list_remarkable(earlier: Recipe, recipe: Recipe) -> list[str]:
    """List all settings that differ, except those that no result depends on."""
    return differences(remarkable(earlier), remarkable(recipe))


def remarkable(recipe: Recipe) -> dict[str, Any]:
    """Return the sections of a recipe that results depend on, without its model."""
    return {key: of for key, of in recipe.model_dump(mode="json").items() if key not in _ASIDE}


def _told_by_task(
    before: Mapping[str, Any], now: Mapping[str, Any], task: TaskFacts
) -> dict[str, Any]:
    """Fill in the task's values where the earlier recipe left them unset and the new one does not.

    Args:
        before: the search identity of the earlier recipe.
        now: that of the new recipe.
        task: the task's facts in the manifest.
    """
    said: dict[str, dict[str, Any]] = {
        "episode": dict(task.get("episode", {})),
        "search": {"max_gen_toks": task.get("decoding", {}).get("max_gen_toks")},
        "verifier": {"name": task.get("verifier")},
    }
    found = dict(before)
    for section, values in said.items():
        earlier, given = before.get(section), now.get(section)
        if isinstance(earlier, dict) and isinstance(given, dict):
            left = {k: v for k, v in values.items() if k in given and earlier.get(k) is None}
            found[section] = earlier | {k: v for k, v in left.items() if given[k] is not None}
    return found


def require_recorded(path: Path, recipe: Recipe, manifest: Manifest) -> None:
    """Require that a run's recipe equals the recipe in its manifest: commands write both.

    Raises:
        UserError: they differ; the message names the keys.
    """
    recorded = check_recipe(dict(manifest["recipe"]), f"{path / layout.MANIFEST}, recipe")
    if differing := _between(recorded, recipe):
        raise UserError(
            f"{path / layout.RECIPE}: differs from the recipe in {layout.MANIFEST}: "
            f"{'; '.join(differing)}. Restore it; to change a run, give your own recipe to gapft "
            "run. If a command was interrupted, run it again"
        )


def require_settled(path: Path, stored: Recipe, recipe: Recipe, stages: Sequence[str]) -> None:
    """Require the recipe on disk for stages that run without the select stage.

    Only select stores a changed recipe. Settings of how jobs run may differ, and conditions and
    seeds may be fewer.

    Args:
        path: the run directory.
        stored: the recipe on disk.
        recipe: the recipe of the command.
        stages: the requested stages.

    Raises:
        UserError: another setting differs; the message names the keys.
    """
    stored = stored.run_as(recipe)
    if {*recipe.conditions} <= {*stored.conditions} and {*recipe.seeds} <= {*stored.seeds}:
        stored = only(stored, [*recipe.conditions], recipe.seeds)
    if differing := _between(stored, recipe):
        raise UserError(
            f"run directory {path}: {' '.join(f'--only {name}' for name in stages)} uses the "
            f"recipe of the run, and yours differs: {'; '.join(differing)}. Run the command "
            "without --only (finished work is not repeated), or with --only select first"
        )


def _between(before: Recipe, after: Recipe) -> list[str]:
    return differences(before.model_dump(mode="json"), after.model_dump(mode="json"))


def _as_begun(earlier: Recipe, recipe: Recipe) -> Recipe:
    """Keep the chat template that the run started with, unless the new recipe sets one."""
    if recipe.model.chat_template is not None:
        return recipe
    begun = {"chat_template": earlier.model.chat_template}
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=begun)})


def grown(earlier: Recipe, recipe: Recipe, trained: Mapping[Arm, Condition]) -> Recipe:
    """Extend a recipe with the conditions and seeds that the run has already trained.

    Every condition is reported for every seed. So a condition is added if it is trained for all
    requested seeds, and then a seed if all those conditions are trained for it: nothing is
    trained that was not requested.

    Args:
        earlier: the recipe of the run; its order of conditions and seeds is kept.
        recipe: the requested recipe.
        trained: the arms with sealed adapters, each with the condition that chose its training
            set.
    """
    recipe = _as_begun(earlier, recipe)

    def ordered(kept: Collection[Any], known: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(name for name in dict.fromkeys((*known, *kept)) if name in kept)

    conditions = list(recipe.conditions)
    for name in dict.fromkeys(arm.condition for arm in trained):
        if name not in conditions and all(Arm(name, seed) in trained for seed in recipe.seeds):
            conditions.append(name)
    seeds = list(recipe.seeds)
    for seed in sorted({arm.seed for arm in trained}):
        if seed not in seeds and all(Arm(name, seed) in trained for name in conditions):
            seeds.append(seed)
    if (len(conditions), len(seeds)) == (len(recipe.conditions), len(recipe.seeds)):
        return recipe
    known = {arm.condition: by for arm, by in trained.items()} | {**recipe.conditions}
    return recipe.model_copy(
        update={
            "conditions": {
                name: known[name] for name in ordered(conditions, [*earlier.conditions])
            },
            "seeds": ordered(seeds, earlier.seeds),
        }
    )


def only(recipe: Recipe, conditions: Sequence[str], seeds: Sequence[int]) -> Recipe:
    """Restrict a recipe to some of its conditions and seeds; an empty list keeps all.

    Raises:
        UserError: the recipe does not have a requested condition or seed.
    """
    wanted: dict[str, tuple[Any, ...]] = {}
    for key, known, asked in (
        ("conditions", tuple(recipe.conditions), conditions),
        ("seeds", recipe.seeds, seeds),
    ):
        for name in asked:
            if name not in known:
                raise UserError(
                    f"{name!r} is not one of the {key} of this run: "
                    f"{', '.join(map(str, known))}; gapft run can train more"
                )
        wanted[key] = tuple(name for name in known if name in asked or not asked)
    kept = {name: recipe.conditions[name] for name in wanted["conditions"]}
    return recipe.model_copy(update={**wanted, "conditions": kept})


def differences(before: Any, after: Any, key: str = "") -> list[str]:
    """List the keys at which two resolved recipes differ, each with both values."""
    return [describe_change(at, a, b) for at, a, b in changes(before, after, key)]
