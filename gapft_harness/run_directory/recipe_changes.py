"""Compare a recipe with a run's recipe; add the conditions and seeds that the run has trained."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import describe_change, diff_values
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.facts import TaskFacts

#: Sections of a recipe that do not affect results: their changes are not reported.
_IGNORED_SECTIONS = ("executor", "tracker", "notes", "description", "paper", "model")


def find_changes(
    path: Path, earlier: Recipe, recipe: Recipe, task: TaskFacts, plugins: Plugins | None = None
) -> list[str]:
    """List the settings that differ from a run's and that its work depends on, with both values.

    Args:
        path: the run directory.
        earlier: the run's recipe.
        recipe: the new recipe.
        task: the task, as the run recorded it; empty before the search.
        plugins: as for ``Recipe.build_identity``.

    Raises:
        UserError: the recipes have different names.
    """
    if earlier.name != recipe.name:
        raise UserError(
            f"run directory {path}: contains a run of the recipe {earlier.name}, not "
            f"{recipe.name}; use another --run-dir"
        )
    names = [name for name in earlier.conditions if name in recipe.conditions]
    before, after = (
        {
            **compared.build_identity(plugins),
            "conditions": {n: compared.conditions[n].model_dump(mode="json") for n in names},
        }
        for compared in (earlier, _keep_chat_template(earlier, recipe))
    )
    _fill_task_values(before, after, task)
    return list_differences(before, after)


def _fill_task_values(before: dict[str, Any], after: dict[str, Any], task: TaskFacts) -> None:
    """Fill in the task's values for keys that a run's recipe leaves to the task.

    So a recipe that only states such a value changes nothing.
    """
    values_by_section: dict[str, Mapping[str, Any]] = {
        "episode": task.get("episode", {}),
        "search": {"max_gen_toks": task.get("decoding", {}).get("max_gen_toks")},
        "verifier": {"name": task.get("verifier")},
        "evidence": {"keep": task.get("keep")},
    }
    for section, values in values_by_section.items():
        for key, value in values.items():
            if section in before and before[section][key] is None:
                before[section][key] = value
                if after[section][key] is None:
                    after[section][key] = value


def select_searched(recipe: Recipe) -> dict[str, Any]:
    """Select the settings that decide problems and verdicts and are in no key of an output."""
    content = recipe.model_dump(mode="json")
    return {
        **{section: content[section] for section in ("data", "verifier", "episode")},
        "search": {"max_gen_toks": recipe.search.max_gen_toks},
        "experiments": {"scaling": {"calibration": recipe.calibration}},
    }


def require_searched_recipe(path: Path, recipe: Recipe, task: TaskFacts) -> None:
    """Require that a run was searched with the settings of its recipe.

    Args:
        path: the run directory.
        recipe: the recipe.
        task: the task, as the search recorded it.

    Raises:
        UserError: settings differ; the message names the keys.
    """
    before, after = deepcopy(task["recipe"]), select_searched(recipe)
    _fill_task_values(before, after, task)
    if differing := list_differences(before, after):
        raise UserError(
            f"{path}: the search has other settings: {'; '.join(differing)}; run the command "
            "without --only"
        )


def list_setting_changes(earlier: Recipe, recipe: Recipe) -> list[str]:
    """List the settings that differ and that results depend on, without the section ``model``."""
    before, after = (
        compared.model_dump(mode="json", exclude={*_IGNORED_SECTIONS})
        for compared in (earlier, recipe)
    )
    return list_differences(before, after)


def require_same_recipe(path: Path, stored: Recipe, recipe: Recipe, stages: Sequence[str]) -> None:
    """Require that a command without the select stage uses the run's recipe.

    Only select stores a changed recipe. The sections ``model`` and ``executor`` may differ, and the
    command may name fewer conditions and seeds.

    Args:
        path: the run directory.
        stored: the run's recipe.
        recipe: the recipe of the command.
        stages: the requested stages.

    Raises:
        UserError: other settings differ; the message names the keys.
    """
    stored = stored.with_execution_of(recipe)
    if {*recipe.conditions} <= {*stored.conditions} and {*recipe.seeds} <= {*stored.seeds}:
        stored = restrict_recipe(stored, [*recipe.conditions], recipe.seeds)
    if differing := list_differences(
        stored.model_dump(mode="json"), recipe.model_dump(mode="json")
    ):
        raise UserError(
            f"run directory {path}: {' '.join(f'--only {name}' for name in stages)} uses the "
            f"recipe of the run, and yours differs: {'; '.join(differing)}. Run the command "
            "without --only (finished work is not repeated), or with --only select first"
        )


def _keep_chat_template(earlier: Recipe, recipe: Recipe) -> Recipe:
    """Keep the chat template that the run started with, unless the new recipe sets one."""
    if recipe.model.chat_template is not None:
        return recipe
    kept_template = {"chat_template": earlier.model.chat_template}
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=kept_template)})


def extend_recipe(earlier: Recipe, recipe: Recipe, trained: Collection[Arm]) -> Recipe:
    """Extend a recipe with conditions and seeds that the run has already trained.

    A report has every condition for every seed. To train nothing that was not requested, this adds
    a condition only if it is trained for all requested seeds, and then a seed only if all these
    conditions are trained for it.

    Args:
        earlier: the recipe of the run, which determines the order of conditions and seeds.
        recipe: the requested recipe.
        trained: the arms that have an adapter. Conditions that the earlier recipe no longer has are
            not added.
    """
    recipe = _keep_chat_template(earlier, recipe)

    def restore_order(names: Collection[Any], earlier_names: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(name for name in dict.fromkeys((*earlier_names, *names)) if name in names)

    conditions = list(recipe.conditions)
    for name in earlier.conditions:
        if name not in conditions and all(Arm(name, seed) in trained for seed in recipe.seeds):
            conditions.append(name)
    seeds = list(recipe.seeds)
    for seed in sorted({arm.seed for arm in trained}):
        if seed not in seeds and all(Arm(name, seed) in trained for name in conditions):
            seeds.append(seed)
    if (len(conditions), len(seeds)) == (len(recipe.conditions), len(recipe.seeds)):
        return recipe
    conditions_by_name = {**earlier.conditions, **recipe.conditions}
    return recipe.model_copy(
        update={
            "conditions": {
                name: conditions_by_name[name]
                for name in restore_order(conditions, [*earlier.conditions])
            },
            "seeds": restore_order(seeds, earlier.seeds),
        }
    )


def restrict_recipe(recipe: Recipe, conditions: Sequence[str], seeds: Sequence[int]) -> Recipe:
    """Restrict a recipe to some of its conditions and seeds; an empty list keeps all.

    Raises:
        UserError: the recipe does not have a requested condition or seed.
    """
    selected: dict[str, tuple[Any, ...]] = {}
    for key, available, requested in (
        ("conditions", tuple(recipe.conditions), conditions),
        ("seeds", recipe.seeds, seeds),
    ):
        for name in requested:
            if name not in available:
                raise UserError(
                    f"{name!r} is not one of the {key} of this run: "
                    f"{', '.join(map(str, available))}; train others with gapft run"
                )
        selected[key] = tuple(name for name in available if name in requested or not requested)
    kept_conditions = {name: recipe.conditions[name] for name in selected["conditions"]}
    return recipe.model_copy(update={**selected, "conditions": kept_conditions})


def list_differences(before: Any, after: Any, key: str = "") -> list[str]:
    """List the keys at which two resolved recipes differ, each with both values."""
    return [describe_change(path, a, b) for path, a, b in diff_values(before, after, key)]
