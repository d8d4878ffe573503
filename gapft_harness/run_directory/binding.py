"""What a run is bound to, from which stage on, and which conditions and seeds it keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import changes
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest, TaskFacts

#: Folders that are there before anything is trained; what is sealed in any other came of adapters.
_BEFORE = ("pool", "audit", "calibration", layout.SELECTIONS)

_CALIBRATION = (
    ". experiments.scaling.calibration: a number takes problems out of the pool, which is another "
    "pool then; `validation` takes none, and may be added to any run"
)


def came_of_adapters(relative: str) -> bool:
    """Whether a sealed file, told by its path in the run directory, came of trained adapters."""
    return layout.folder_of(relative) not in _BEFORE


def require_bound(
    path: Path,
    earlier: Recipe,
    recipe: Recipe,
    trained: Mapping[Arm, Condition],
    folders: Sequence[str],
    plugins: Plugins | None = None,
    task: TaskFacts | None = None,
) -> None:
    """Stops a recipe that would change what a run was made by.

    Args:
        trained: the arms of which anything is sealed that came of an adapter, with what chose
            their training sets.
        task: the run's, whose values hold where the earlier recipe left a key to the task.

    Raises:
        UserError: it would; the message names the keys that differ, and what to do.
    """
    recipe = _as_begun(earlier, recipe)
    before, now = earlier.identity(plugins), recipe.identity(plugins)
    if differing := differences(_told_by_task(before, now, task or {}), now):
        hint = any(line.startswith("experiments.scaling") for line in differing)
        raise UserError(
            f"run directory {path} was made by another recipe; differing: "
            f"{'; '.join(differing)}. Give another --run-dir, which reuses every response that "
            f"is the same, or the recipe it was made by{_CALIBRATION if hint else ''}"
        )
    differing = differences(earlier.trained_by(), recipe.trained_by())
    if differing and folders:
        raise UserError(
            f"run directory {path} holds adapters that were trained by other settings; differing: "
            f"{'; '.join(differing)}. Give another --run-dir, which reuses the search and trains "
            "anew, or the settings they were trained by"
        )
    chosen = {
        arm.condition: by for arm, by in trained.items() if arm.condition in recipe.conditions
    }
    before = {name: earlier.settled(of) for name, of in chosen.items()}
    now = {name: recipe.settled(recipe.conditions[name]) for name in chosen}
    if differing := differences(before, now, "conditions"):
        raise UserError(
            f"run directory {path} holds adapters of conditions that were chosen otherwise; "
            f"differing: {'; '.join(differing)}. Give what is chosen otherwise another name, or "
            "give another --run-dir"
        )
    if earlier.evidence.keep is not None and recipe.evidence.keep is None:
        raise UserError(
            f"run directory {path}: evidence.keep is {earlier.evidence.keep!r} there, and not "
            "given here; name the rule (evidence.keep), also if it is the task's own"
        )


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


def require_said(path: Path, name: str, before: Mapping[str, Any], recipe: Recipe) -> None:
    """Stops a recipe that says something else of a further audit than it was searched by.

    Args:
        recipe: the one that is given now; it may name no such audit.

    Raises:
        UserError: it does; the message names the keys that differ.
    """
    choice = recipe.audits.get(name)
    if choice is not None and before != (now := choice.said()):
        raise UserError(
            f"run directory {path}: the audit {name!r} was searched otherwise; differing: "
            f"{'; '.join(differences(before, now, f'audits.{name}'))}. Give what is audited "
            "otherwise another name, or give another --run-dir"
        )


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
    """Keys at which two resolved recipes differ, with both values."""
    return [f"{at} ({a!r} there, {b!r} here)" for at, a, b in changes(before, after, key)]
