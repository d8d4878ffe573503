"""Check that all cells of a study have the same protocol, so that their mean is meaningful.

The paper's cells have the same search, training recipe and seeds; model, task, verifier rule and
the budget that results from search differ between cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.experiments.scaling.job import find_settings
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.recipe_changes import list_differences
from gapft_harness.study.cells import CollectedCell
from gapft_harness.study.recipe import StudyRecipe

#: Sections of a recipe that must be the same in every cell.
SECTIONS = ("search", "episode", "evidence", "budget", "training", "statistics")
#: Keys of these sections that may differ: how a job runs, or settings of the task like its prompt.
OWN_KEYS = (
    "search.chunk", "search.max_gen_toks", "training.start_tokens",
    "training.gradient_checkpointing", "training.padding_free", "training.max_tokens",
)  # fmt: skip
#: Differing ids that a message names.
_IDS_NAMED = 3


def require_one_protocol(study: StudyRecipe, recipes: Mapping[str, Recipe]) -> None:
    """Compare the cells' recipes, before anything is run and again for the collected cells.

    Raises:
        UserError: two recipes differ; the message has the cells, the keys and both values.
    """
    # a condition that a run does not have is reported as missing, not as different
    shared = [
        condition
        for condition in study.conditions
        if all(condition in cell_recipe.conditions for cell_recipe in recipes.values())
    ]
    require_equal(
        {name: _select_recipe_protocol(shared, recipe) for name, recipe in recipes.items()}
    )
    require_equal({name: _select_scaling_rule(recipe) for name, recipe in recipes.items()})
    require_equal({name: _select_start_tokens(recipe) for name, recipe in recipes.items()})


def _select_scaling_rule(recipe: Recipe) -> dict[str, Any] | None:
    """Select the rule by which adapters are scaled; None if they are not."""
    settings = find_settings(recipe)
    if settings is None:
        return None
    return {"experiments.scaling": {"level": settings.level, "tolerance": settings.tolerance}}


def _select_start_tokens(recipe: Recipe) -> dict[str, Any] | None:
    """Select the numbers of start tokens; None: not set, e.g. since the tokenizer has none."""
    count = recipe.model.start_tokens
    if count is None:
        return None
    in_training = recipe.training.start_tokens
    return {
        "model": {"start_tokens": count},
        "training": {"start_tokens": count if in_training is None else in_training},
    }


def require_comparable(study: StudyRecipe, cells: Sequence[CollectedCell]) -> None:
    """Compare complete cells: the settings that their tasks determine, and the audits.

    Raises:
        UserError: protocols differ, or cells with the same task have different audit problems or
            versions of the task; the message lists the differences.
    """
    inputs = {cell.name: cell.inputs for cell in cells if cell.inputs is not None}
    require_equal(
        {name: select_task_protocol(cell_inputs.task) for name, cell_inputs in inputs.items()}
    )
    first_cells: dict[str, str] = {}
    for name, cell_inputs in inputs.items():
        task = cell_inputs.recipe["data"]["task"]
        other = first_cells.setdefault(task, name)
        tasks = (inputs[other].task, cell_inputs.task)
        for key in ("version", "fingerprint"):
            other_value, cell_value = (task.get(key) for task in tasks)
            if other_value != cell_value:
                raise UserError(
                    f"cells {other!r} and {name!r} have different versions of task {task}: its "
                    f"{key} is {other_value!r} in {other!r} and {cell_value!r} in {name!r}, so "
                    "prompts or answers may differ. Run both on the same version of the task, or "
                    "use separate studies"
                )
        cell_ids, other_ids = (
            set(cell_inputs.audit.ids.tolist()),
            set(inputs[other].audit.ids.tolist()),
        )
        if cell_ids != other_ids:
            raise UserError(
                f"cells {other!r} and {name!r} were audited on different problems of {task}: "
                f"{_describe_extra(other, other_ids - cell_ids)}; "
                f"{_describe_extra(name, cell_ids - other_ids)}. Audit both on the same problems "
                "(data.audit_limit, data.deduplicate, the task's data), or use separate studies"
            )


def _describe_extra(cell: str, ids: set[str]) -> str:
    if not ids:
        return f"none only in {cell!r}"
    ellipsis = ", …" if len(ids) > _IDS_NAMED else ""
    return f"{len(ids)} only in {cell!r} ({', '.join(sorted(ids)[:_IDS_NAMED])}{ellipsis})"


def _select_recipe_protocol(conditions: Sequence[str], recipe: Recipe) -> dict[str, Any]:
    """Select the protocol in a recipe, without the settings that the task determines."""
    dumped = recipe.model_dump(mode="json")
    protocol: dict[str, Any] = {section: dict(dumped[section]) for section in SECTIONS}
    for key in (*OWN_KEYS, "episode.attempts", "episode.executions", "evidence.keep"):
        section, _, name = key.partition(".")
        del protocol[section][name]
    for name in conditions:
        protocol[f"conditions.{name}"] = recipe.conditions[name].model_dump(mode="json")
    return protocol


def select_task_protocol(task: Mapping[str, Any]) -> dict[str, Any]:
    """Select the protocol in a task: the rule that keeps responses, and the episode."""
    episode = task.get("episode", {})
    return {
        "evidence": {"keep": task["keep"]},
        "episode": {name: episode.get(name, 1) for name in ("attempts", "executions")},
    }


def require_equal(protocols: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Compare parts of the cells' protocols.

    Args:
        protocols: by cell; None where it is unknown, or has no such part.

    Raises:
        UserError: two cells differ.
    """
    known = [(name, protocol) for name, protocol in protocols.items() if protocol is not None]
    lines = [
        f"  {known[0][0]!r} → {name!r}: {'; '.join(changes)}"
        for name, protocol in known[1:]
        if (changes := list_differences(known[0][1], protocol))
    ]
    if lines:
        raise UserError(
            "the cells of a study must have the same protocol, but these differ:\n"
            + "\n".join(lines)
            + "\nMake them equal (the study's key 'set' applies to every cell that names a "
            "recipe), or use a separate study for each protocol"
        )
