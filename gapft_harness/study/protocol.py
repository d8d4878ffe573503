"""Check that all cells of a study have the same protocol, so that their mean is meaningful.

The paper's cells have the same search, training recipe and seeds; model, task, verifier rule and
the budget that results from search differ between cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.binding import differences
from gapft_harness.study.cells import Collected
from gapft_harness.study.recipe import StudyRecipe

#: Sections of a recipe that must be the same in every cell.
SECTIONS = ("search", "episode", "evidence", "budget", "training", "statistics")
#: Keys of these sections that may differ: how a job runs, or settings of the task like its prompt.
OWN = (
    "search.chunk", "search.max_gen_toks",
    "training.gradient_checkpointing", "training.padding_free", "training.max_tokens",
)  # fmt: skip
#: Differing ids that a message names.
_NAMED = 3


def require_one_protocol(study: StudyRecipe, recipes: Mapping[str, Recipe]) -> None:
    """Compare the cells' recipes, before anything is run and again for the collected cells.

    Raises:
        UserError: two recipes differ; the message has the cells, the keys and both values.
    """
    # a condition that a run does not have is reported as missing, not as different
    shared = [c for c in study.conditions if all(c in of.conditions for of in recipes.values())]
    if recipes:
        _require_equal({name: _of_recipe(shared, recipe) for name, recipe in recipes.items()})
    starts = {
        name: {"model": {"start_tokens": of.model.start_tokens}}
        for name, of in recipes.items()
        if of.model.start_tokens is not None  # None: the tokenizer has no start tokens
    }
    if starts:
        _require_equal(starts)


def require_settled(settled: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Compare the settings that the cells' tasks determine, before anything is run.

    Args:
        protocols: by cell, the result of ``select_task_protocol``; None where it is unknown.

    Raises:
        UserError: two tasks differ.
    """
    if known := {name: dict(of) for name, of in settled.items() if of is not None}:
        _require_equal(known)


def require_comparable(study: StudyRecipe, cells: Sequence[Collected]) -> None:
    """Compare complete cells: the settings that their tasks determine, and the audits.

    Raises:
        UserError: protocols differ, or cells with the same task have different audit problems or
            versions of the task; the message lists the differences.
    """
    inputs = {cell.name: cell.inputs for cell in cells if cell.inputs is not None}
    require_settled({name: of_task(of.task) for name, of in inputs.items()})
    first: dict[str, str] = {}
    for name, of in inputs.items():
        task = of.recipe["data"]["task"]
        other = first.setdefault(task, name)
        tasks = (inputs[other].task, of.task)
        for key in ("version", "fingerprint"):
            one, two = (task.get(key) for task in tasks)
            if one != two:
                raise UserError(
                    f"cells {other!r} and {name!r} have different versions of task {task}: its "
                    f"{key} is {one!r} in {other!r} and {two!r} in {name!r}, so prompts or answers "
                    "may differ. Run both on the same version of the task, or use separate studies"
                )
        here, there = set(of.audit.ids.tolist()), set(inputs[other].audit.ids.tolist())
        if here != there:
            raise UserError(
                f"cells {other!r} and {name!r} were audited on different problems of {task}: "
                f"{_only(other, there - here)}; {_only(name, here - there)}. Audit both on the "
                "same problems (data.audit_limit, data.deduplicate, the task's data), or use "
                "separate studies"
            )


def _only(cell: str, ids: set[str]) -> str:
    if not ids:
        return f"none only in {cell!r}"
    more = ", …" if len(ids) > _NAMED else ""
    return f"{len(ids)} only in {cell!r} ({', '.join(sorted(ids)[:_NAMED])}{more})"


def _of_recipe(conditions: Sequence[str], recipe: Recipe) -> dict[str, Any]:
    """Select the protocol in a recipe, without the settings that the task determines."""
    dumped = recipe.model_dump(mode="json")
    said: dict[str, Any] = {section: dict(dumped[section]) for section in SECTIONS}
    for key in (*OWN, "episode.attempts", "episode.executions", "evidence.keep"):
        section, _, name = key.partition(".")
        del said[section][name]
    plugins = load_plugins()
    for name in conditions:
        condition = recipe.conditions[name]
        places = plugins.selector_traits(condition.selector).files  # each cell has its own
        params = {key: of for key, of in condition.params.items() if key not in places}
        said[f"conditions.{name}"] = condition.model_dump(mode="json") | {"params": params}
    return said


def of_task(task: Mapping[str, Any]) -> dict[str, Any]:
    """Select the protocol in a task: the rule that keeps responses, and the episode."""
    episode = task.get("episode", {})
    return {
        "evidence": {"keep": task["keep"]},
        "episode": {name: episode.get(name, 1) for name in ("attempts", "executions")},
    }


def _require_equal(said: Mapping[str, dict[str, Any]]) -> None:
    first, *others = said
    lines = [
        f"  {first!r} → {name!r}: {'; '.join(found)}"
        for name in others
        if (found := differences(said[first], said[name]))
    ]
    if lines:
        raise UserError(
            "the cells of a study must have the same protocol, but these differ:\n"
            + "\n".join(lines)
            + "\nMake them equal (the study's key 'set' applies to every cell that names a "
            "recipe), or use a separate study for each protocol"
        )
