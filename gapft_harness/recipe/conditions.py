"""The conditions of a recipe: each has a name and a selector of its training sets."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter
from pydantic_core import PydanticKnownError

from gapft_harness.core.records import SOURCE
from gapft_harness.recipe.sections import RecipeSection, Slots

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

    def with_whole_paths(self, files: Collection[str]) -> Condition:
        """Make the paths among the selector's parameters absolute.

        Args:
            files: the parameters that are paths.
        """
        whole = {
            key: str(Path(value).resolve())
            for key, value in self.params.items()
            if key in files and isinstance(value, str)
        }
        return self.model_copy(update={"params": {**self.params, **whole}})

    def said(self, name: str) -> dict[str, Any]:
        """Return the settings that a recipe must state under this name, without defaults."""
        found = self.model_dump(mode="json", exclude_defaults=True)
        if self.selector == name:
            del found["selector"]
        return found


def named(name: str, said: Mapping[str, Any]) -> Condition:
    """Build a condition from its name and settings; inverse of ``Condition.dump_settings``."""
    return Condition.model_validate({"selector": name, **said})


def as_mapping(value: Any) -> Any:
    """Convert a list of names and one-key mappings to a mapping; return others unchanged."""
    if not isinstance(value, list | tuple):
        return value
    found: dict[str, Any] = {}
    for item in value:
        entry = {item: {}} if isinstance(item, str) else item
        if not isinstance(entry, dict) or len(entry) != 1 or found.keys() & entry.keys():
            return value
        found |= entry
    return found


def conditions_of(recipe: Mapping[str, Any]) -> Mapping[str, Condition]:
    """Return the conditions of a recipe by name, in its order.

    Args:
        recipe: the recipe in a manifest.
    """
    said = as_mapping(recipe["conditions"])
    return {name: named(name, of or {}) for name, of in said.items()}


def own_settings(
    recipe: Mapping[str, Any], taken: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return each condition's own settings that differ from the run's.

    Conditions with different own settings are never called matched, whatever their budgets.

    Args:
        recipe: the recipe in a manifest.
        shared_sets: for conditions with training sets of another run, by name, the facts of that
            run in ``budgets``; before selection its K and replay are not known.

    Returns:
        Values by condition and dotted key (``k``, ``replay``, ``training.learning_rate``); values
        equal to the run's are omitted.
    """
    run = {"k": recipe["search"]["k"], "replay": recipe["budget"]["replay"]}
    run |= {f"training.{key}": value for key, value in recipe["training"].items()}
    found = {}
    for name, of in conditions_of(recipe).items():
        own = (taken or {}).get(name, {"k": of.k})
        said = {key: own[key] for key in ("k", "replay") if own.get(key) is not None}
        said |= {f"training.{key}": value for key, value in of.training.items()}
        found[name] = {key: value for key, value in said.items() if value != run.get(key)}
    return found


def find_replicates(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Map each condition that repeats another's training to that condition.

    Conditions that differ only in ``replicate`` are trained on the same sets, with the same
    settings and seeds. The others repeat the one with the lowest number, or the first of the recipe
    among several.

    Args:
        recipe: the recipe in a manifest.
    """
    conditions, own = conditions_of(recipe), own_settings(recipe)
    first: dict[str, str] = {}
    replicates = {}
    for name, condition in sorted(conditions.items(), key=lambda item: item[1].replicate):
        chosen_by = {
            "selector": condition.selector,
            "params": condition.params,
            "n": condition.n or recipe["budget"]["n"],
        }
        original = first.setdefault(json.dumps([chosen_by, own[name]], sort_keys=True), name)
        if condition.replicate != conditions[original].replicate:
            replicates[name] = original
    return replicates


def picked(value: Any, names: Sequence[str]) -> list[Any]:
    """Select conditions from a recipe's content; treat a missing name as a selector."""
    known = as_mapping(value)
    known = known if isinstance(known, Mapping) else {}
    return [{name: known[name]} if known.get(name) else name for name in names]


def _read(value: Any) -> Mapping[str, Condition]:
    given = as_mapping(value)
    if isinstance(given, list | tuple):
        if not all(
            isinstance(item, str) or (isinstance(item, dict) and len(item) == 1) for item in given
        ):
            raise ValueError("expected names, or a mapping from one name to its settings")
        raise ValueError(f"contains a duplicate: {list(given)}")
    if not isinstance(given, Mapping):
        raise PydanticKnownError("list_type")
    if not given:
        context = {"field_type": "List", "min_length": 1, "actual_length": 0}
        raise PydanticKnownError("too_short", context)
    filled = {
        name: {"selector": name, **(said or {})}
        if said is None or isinstance(said, Mapping)
        else said
        for name, said in given.items()
    }
    found = _CONDITIONS.validate_json(json.dumps(filled), strict=True)
    for name, condition in found.items():
        if condition.said(name) and (not _NAME.fullmatch(name) or name == SOURCE):
            raise ValueError(
                f"{name!r} cannot name a condition; expected letters, digits, '.', '_' and '-', "
                f"but not {SOURCE!r}, the model before training"
            )
    return found


def _write(conditions: Mapping[str, Condition]) -> list[str] | dict[str, Any]:
    """Serialize conditions; names without settings become a list."""
    said = {name: condition.said(name) for name, condition in conditions.items()}
    return said if any(said.values()) else list(said)


_CONDITIONS = TypeAdapter(dict[str, Condition])

#: Conditions by name, in the recipe's order.
Conditions = Annotated[Mapping[str, Condition], PlainValidator(_read), PlainSerializer(_write)]
