"""The conditions of a recipe: each has a name and a selector of its training sets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, TypeAdapter

from gapft_harness.core.records import SOURCE
from gapft_harness.recipe.sections import Grpo, RecipeSection, Slots

#: Conditions name files. (Not checked for conditions named after their selector.)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Condition(RecipeSection):
    """How one condition's training sets are chosen."""

    selector: str = Field(description="the selector; default: the one with the condition's name")
    params: dict[str, Any] = Field(
        default_factory=dict, description="arguments of the selector, by name"
    )
    n: Slots | None = Field(
        None,
        description="the condition's own number of example slots, in the form of `budget.n`; "
        "budgets are matched among conditions with the same n; default: `budget.n`",
    )
    k: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="the condition's own K: states and evidence of its pool use the first K "
        "samples of the search; default: `search.k`",
    )
    training: dict[str, Any] = Field(
        default_factory=dict,
        description="keys that override the section `training`, including `trainer` and "
        "`start_tokens`; default: the section's values",
    )
    replicate: Annotated[int, Field(ge=0)] = Field(
        0,
        description="number of a replicate: two conditions that differ only in it have the same "
        "training sets and seeds, and each is trained; default: 0",
    )

    def dump_settings(self, name: str) -> dict[str, Any]:
        """Return the settings that a recipe must state under this name, without defaults."""
        settings = self.model_dump(mode="json", exclude_defaults=True)
        if self.selector == name:
            del settings["selector"]
        return settings


def convert_to_mapping(value: Any) -> Any:
    """Convert a list of names and one-key mappings to a mapping; return others unchanged."""
    if not isinstance(value, list | tuple):
        return value
    mapping: dict[str, Any] = {}
    for item in value:
        entry = {item: {}} if isinstance(item, str) else item
        if not isinstance(entry, dict) or len(entry) != 1 or mapping.keys() & entry.keys():
            return value
        mapping |= entry
    return mapping


def find_own_settings(recipe: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each condition's own settings that differ from the run's.

    Conditions with different own settings are never called matched, whatever their budgets.

    Args:
        recipe: a resolved recipe (``Recipe.model_dump``).

    Returns:
        Values by condition and dotted key (``k``, ``training.learning_rate``); values equal to the
        run's are omitted.
    """
    run: dict[str, Any] = {"k": recipe["search"]["k"]}
    run["training.grpo"] = Grpo().model_dump(mode="json")
    run |= {f"training.{key}": value for key, value in recipe["training"].items()}
    settings_by_condition = {}
    for name, condition in _READER.validate_python(recipe["conditions"]).items():
        settings: dict[str, Any] = {} if condition.k is None else {"k": condition.k}
        settings |= {f"training.{key}": value for key, value in condition.training.items()}
        if "grpo" in condition.training:
            settings["training.grpo"] = {**run["training.grpo"], **condition.training["grpo"]}
        settings_by_condition[name] = {
            key: value for key, value in settings.items() if value != run.get(key)
        }
    return settings_by_condition


def find_replicates(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Map each condition that repeats another's training to that condition.

    Conditions that differ only in ``replicate`` are trained on the same sets, with the same
    settings and seeds. The others repeat the one with the lowest number, or the first of the recipe
    among several.

    Args:
        recipe: a resolved recipe (``Recipe.model_dump``).
    """
    conditions = _READER.validate_python(recipe["conditions"])
    settings = find_own_settings(recipe)
    originals: dict[str, str] = {}
    replicates = {}
    for name, condition in sorted(conditions.items(), key=lambda item: item[1].replicate):
        selection = {
            "selector": condition.selector,
            "params": condition.params,
            "n": condition.n or recipe["budget"]["n"],
        }
        original = originals.setdefault(
            json.dumps([selection, settings[name]], sort_keys=True), name
        )
        if condition.replicate != conditions[original].replicate:
            replicates[name] = original
    return replicates


def select_conditions(value: Any, names: Sequence[str]) -> list[Any]:
    """Select conditions from a recipe's content; treat a missing name as a selector."""
    conditions = convert_to_mapping(value)
    conditions = conditions if isinstance(conditions, Mapping) else {}
    return [{name: conditions[name]} if conditions.get(name) else name for name in names]


def _complete_settings(value: Any) -> Any:
    """Convert conditions to a mapping, and set each selector that is not set."""
    content = convert_to_mapping(value)
    if not isinstance(content, Mapping):
        raise ValueError("expected distinct names, or a mapping from names to their settings")
    return {
        name: {"selector": name, **(settings or {})}
        if settings is None or isinstance(settings, Mapping)
        else settings
        for name, settings in content.items()
    }


def _check_names(conditions: Mapping[str, Condition]) -> Mapping[str, Condition]:
    """Check the names of conditions, which become file names (``run_directory/layout.py``)."""
    if not conditions:
        raise ValueError("expected at least one condition")
    for name, condition in conditions.items():
        is_named_by_user = bool(condition.dump_settings(name))
        if "/" in name or (is_named_by_user and (not _NAME.fullmatch(name) or name == SOURCE)):
            raise ValueError(
                f"{name!r} cannot name a condition; expected letters, digits, '.', '_' and '-', "
                f"but not {SOURCE!r}, the model before training"
            )
    return conditions


def _dump_conditions(conditions: Mapping[str, Condition]) -> list[str] | dict[str, Any]:
    """Serialize conditions; names without settings become a list."""
    settings = {name: condition.dump_settings(name) for name, condition in conditions.items()}
    return settings if any(settings.values()) else list(settings)


#: Conditions by name, in the recipe's order.
Conditions = Annotated[
    Mapping[str, Condition],
    BeforeValidator(_complete_settings),
    AfterValidator(_check_names),
    PlainSerializer(_dump_conditions),
]
_READER: TypeAdapter[Mapping[str, Condition]] = TypeAdapter(Conditions)
