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
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.run_directory.recipe_changes import list_differences

#: Sections of a recipe that must be the same in every cell.
SECTIONS = ("search", "episode", "evidence", "budget", "training", "statistics")
#: Keys of these sections that may differ: how a job runs, or settings of the task like its prompt.
OWN_KEYS = (
    "search.chunk", "search.max_gen_toks", "training.start_tokens",
    "training.gradient_checkpointing", "training.padding_free", "training.max_tokens",
)  # fmt: skip
#: Keys that a recipe may leave to its task; their resolved values must be the same.
_TASK_KEYS = ("evidence.keep", "episode.attempts", "episode.executions")

#: Settings by key; cells are compared on the keys that both of them have.
Protocol = dict[str, Any]


def select_recipe_protocol(recipe: Recipe, conditions: Sequence[str]) -> Protocol:
    """Select the settings of a recipe that must be the same in every cell.

    Args:
        recipe: the recipe of a cell.
        conditions: the conditions of the study.
    """
    dumped = recipe.model_dump(mode="json")
    protocol: Protocol = {section: dict(dumped[section]) for section in SECTIONS}
    for key in (*OWN_KEYS, *_TASK_KEYS):
        section, _, name = key.partition(".")
        del protocol[section][name]
    protocol |= {
        f"conditions.{name}": condition.model_dump(mode="json")
        for name, condition in recipe.conditions.items()
        if name in conditions
    }
    if (scaling := find_settings(recipe)) is not None:
        rule = {"level": scaling.level, "tolerance": scaling.tolerance}
        protocol["experiments.scaling"] = rule
    if (count := recipe.model.start_tokens) is not None:  # without: the tokenizer may have none
        own = recipe.training.start_tokens
        protocol["model.start_tokens"] = count
        protocol["training.start_tokens"] = count if own is None else own
    return protocol


def select_task_protocol(task: Mapping[str, Any], keep: str | None) -> Protocol:
    """Select the settings of a task that must be the same: its response rule and its episode.

    Args:
        task: the task's facts.
        keep: the recipe's response rule; None for that of the task.
    """
    episode = task.get("episode", {})
    return {
        "evidence.keep": keep or task["keep"],
        "episode.attempts": episode.get("attempts", 1),
        "episode.executions": episode.get("executions", 1),
    }


def select_audit_protocol(inputs: ReportInputs) -> Protocol:
    """Select what must be the same in all cells of one task: its version and the audit problems."""
    task = inputs.recipe["data"]["task"]
    return {
        f"version of task {task}": inputs.task.get("version"),
        f"fingerprint of task {task}": inputs.task.get("fingerprint"),
        f"audit problems of task {task}": sorted(inputs.audit.ids.tolist()),
    }


def require_equal(protocols: Mapping[str, Protocol]) -> None:
    """Check that cells have the same values for the keys that they have in common.

    Args:
        protocols: by cell.

    Raises:
        UserError: two cells differ; the message has the cells, the keys and both values.
    """
    first_values: dict[str, tuple[str, Any]] = {}
    lines = []
    for cell, protocol in protocols.items():
        for key, value in protocol.items():
            other, expected = first_values.setdefault(key, (cell, value))
            changes = list_differences(expected, value, key)
            lines += [f"  {other!r} → {cell!r}: {change}" for change in changes]
    if lines:
        raise UserError(
            "the cells of a study must have the same protocol, but these differ:\n"
            + "\n".join(lines)
            + "\nMake them equal (the study's key 'set' applies to every cell that names a "
            "recipe), or use a separate study for each protocol"
        )
