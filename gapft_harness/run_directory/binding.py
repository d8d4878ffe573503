"""How a recipe differs from the one that a run has, and which conditions and seeds a run keeps."""

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

#: Folders that are there before anything is trained; what is sealed in any other came of adapters.
_BEFORE = ("pool", "audit", "calibration", layout.SELECTIONS)

#: Sections of a recipe that say nothing of results: changes of them are not told.
_ASIDE = ("executor", "trackers", "notes", "description", "paper", "model")


@dataclass(frozen=True, slots=True)
class Changes:
    """What a run was made by and would be made otherwise now, each key with both values.

    Attributes:
        of_search: what all of the run depends on.
        of_selection: what only its training sets and what came of them depend on.
    """

    of_search: tuple[str, ...] = ()
    of_selection: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.of_search or self.of_selection)

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them."""
        return self.of_search + self.of_selection


def came_of_adapters(relative: str) -> bool:
    """Whether a sealed file, told by its path in a run, came of trained adapters."""
    return layout.folder_of(relative) not in _BEFORE


def find_changes(
    path: Path,
    earlier: Recipe,
    recipe: Recipe,
    trained: Mapping[Arm, Condition],
    plugins: Plugins | None = None,
    manifest: Manifest | None = None,
) -> Changes:
    """Compare a recipe with the one that a run was made by.

    Args:
        path: the run's folder.
        earlier: the recipe that it has.
        recipe: the one that is given now.
        trained: the arms of which anything is sealed that came of an adapter, with what chose
            their training sets.
        plugins: as ``Recipe.identity`` takes them.
        manifest: the run's; the task's values hold where the earlier recipe left a key to it.

    Raises:
        UserError: they have different names.
    """
    if earlier.name != recipe.name:
        raise UserError(
            f"run directory {path}: is of the recipe {earlier.name}, and {recipe.name} was given; "
            "give another --run-dir"
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
    """Every key of two recipes that differs, but for those that no result depends on."""
    return differences(remarkable(earlier), remarkable(recipe))


def remarkable(recipe: Recipe) -> dict[str, Any]:
    """The sections of a recipe that results depend on, but for its model."""
    return {key: of for key, of in recipe.model_dump(mode="json").items() if key not in _ASIDE}


def _told_by_task(
    before: Mapping[str, Any], now: Mapping[str, Any], task: TaskFacts
) -> dict[str, Any]:
    """What a run was made by, with the task's value where it said none and is given one now."""
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
    """Holds a run's recipe to the one that its manifest has: a command writes both.

    Raises:
        UserError: it is another; the message names the keys that differ.
    """
    recorded = check_recipe(dict(manifest["recipe"]), f"{path / layout.MANIFEST}, recipe")
    if differing := _between(recorded, recipe):
        raise UserError(
            f"{path / layout.RECIPE}: is not the recipe that {layout.MANIFEST} has; differing: "
            f"{'; '.join(differing)}. Restore it: what may change in a run is given to gapft run "
            "in a recipe of your own. If a command was interrupted, give it again"
        )


def require_settled(path: Path, stored: Recipe, recipe: Recipe, stages: Sequence[str]) -> None:
    """Stops stages that go by the recipe on disk, if another was given that only select takes up.

    How jobs run may differ, and conditions and seeds may be fewer.

    Args:
        stages: those asked for, without select.

    Raises:
        UserError: another setting is given; the message names the keys that differ.
    """
    stored = stored.run_as(recipe)
    if {*recipe.conditions} <= {*stored.conditions} and {*recipe.seeds} <= {*stored.seeds}:
        stored = only(stored, [*recipe.conditions], recipe.seeds)
    if differing := _between(stored, recipe):
        raise UserError(
            f"run directory {path}: {' '.join(f'--only {name}' for name in stages)} goes by the "
            f"recipe that the run has; differing: {'; '.join(differing)}. Give the command without "
            "--only, which makes nothing again that is there, or --only select first"
        )


def _between(before: Recipe, after: Recipe) -> list[str]:
    return differences(before.model_dump(mode="json"), after.model_dump(mode="json"))


def _as_begun(earlier: Recipe, recipe: Recipe) -> Recipe:
    """A recipe that does not decide on a chat template keeps what its run was begun with."""
    if recipe.model.chat_template is not None:
        return recipe
    begun = {"chat_template": earlier.model.chat_template}
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=begun)})


def grown(earlier: Recipe, recipe: Recipe, trained: Mapping[Arm, Condition]) -> Recipe:
    """A recipe with those conditions and seeds besides that a run has trained already.

    Every condition is reported under every seed. So a condition is added if it is trained under
    all seeds that are asked for, and then a seed if all those conditions are trained under it:
    nothing is trained that was not asked for.

    Args:
        earlier: the recipe that the run has; its order stays.
        trained: the arms whose adapters are sealed, with what chose their training sets.
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
    """A recipe with some of its conditions and seeds; none named keeps them all.

    Raises:
        UserError: one that it does not have.
    """
    wanted: dict[str, tuple[Any, ...]] = {}
    for key, known, asked in (
        ("conditions", tuple(recipe.conditions), conditions),
        ("seeds", recipe.seeds, seeds),
    ):
        for name in asked:
            if name not in known:
                raise UserError(
                    f"{name!r} is none of the {key} that this run reports: "
                    f"{', '.join(map(str, known))}; gapft run trains others"
                )
        wanted[key] = tuple(name for name in known if name in asked or not asked)
    kept = {name: recipe.conditions[name] for name in wanted["conditions"]}
    return recipe.model_copy(update={**wanted, "conditions": kept})


def differences(before: Any, after: Any, key: str = "") -> list[str]:
    """Keys at which two resolved recipes differ, each with both values."""
    return [describe_change(at, a, b) for at, a, b in changes(before, after, key)]
