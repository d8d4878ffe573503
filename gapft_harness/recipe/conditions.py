"""A recipe's conditions: each a name, and the selector that its training sets are of."""

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

#: Files are named after conditions. (A name that is its selector's was never held to this.)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Condition(RecipeSection):
    """How one condition's training sets are chosen."""

    selector: str = Field(description="the selector; default: the one of the condition's name")
    params: dict[str, Any] = Field(
        default_factory=dict, description="arguments of the selector, by name"
    )
    n: Slots | None = Field(
        None,
        description="the condition's own number of example slots, written as `budget.n`; budgets "
        "are matched among conditions of the same n; default: `budget.n`",
    )
    k: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="the condition's own K: its pool's states and evidence are those of the first "
        "K samples of the search; default: `search.k`",
    )
    training: dict[str, Any] = Field(
        default_factory=dict,
        description="keys of `training` that are the condition's own, `trainer` and `start_tokens` "
        "among them; default: the section's",
    )
    replicate: Annotated[int, Field(ge=0)] = Field(
        0,
        description="a whole number that names a replicate: two conditions that differ in it alone "
        "have the same training sets and seeds, and each is trained; default: 0",
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
        """What a recipe has to say of it under a name: nothing, if the name says it all."""
        found = self.model_dump(mode="json", exclude_defaults=True)
        if self.selector == name:
            del found["selector"]
        return found


def named(name: str, said: Mapping[str, Any]) -> Condition:
    """The inverse of ``Condition.said``."""
    return Condition.model_validate({"selector": name, **said})


def as_mapping(value: Any) -> Any:
    """A list of names and one-key mappings as one mapping; anything else as it is."""
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
        recipe: as a manifest has it.
    """
    said = as_mapping(recipe["conditions"])
    return {name: named(name, of or {}) for name, of in said.items()}


def own_settings(
    recipe: Mapping[str, Any], taken: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, dict[str, Any]]:
    """What each condition has of its own in place of the run's settings.

    Conditions that differ here are never called matched, whatever their budgets are.

    Args:
        recipe: as a manifest has it.
        taken: by condition whose sets are another run's, what ``budgets`` says of that run; before
            selection its K and replay are not known.

    Returns:
        By condition, by dotted key (``k``, ``replay``, ``training.learning_rate``), its value; what
        it says as the run does is left out.
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
    """Map each condition that repeats the training of another one to that condition.

    Conditions that differ in ``replicate`` alone are trained on the same sets, by the same settings
    and under the same seeds. Of these the one with the lowest number, and of several the first of
    the recipe, is what the others repeat.

    Args:
        recipe: as a manifest has it.
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
    """Some conditions of a recipe's content; a name that it lacks is a selector's."""
    known = as_mapping(value)
    known = known if isinstance(known, Mapping) else {}
    return [{name: known[name]} if known.get(name) else name for name in names]


def _read(value: Any) -> Mapping[str, Condition]:
    given = as_mapping(value)
    if isinstance(given, list | tuple):
        if not all(
            isinstance(item, str) or (isinstance(item, dict) and len(item) == 1) for item in given
        ):
            raise ValueError("expected names, or of a condition one key with its settings")
        raise ValueError(f"names one thing twice: {list(given)}")
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
                f"and not {SOURCE!r}, which is the model before training"
            )
    return found


def _write(conditions: Mapping[str, Condition]) -> list[str] | dict[str, Any]:
    """Names alone as a list, as ever."""
    said = {name: condition.said(name) for name, condition in conditions.items()}
    return said if any(said.values()) else list(said)


_CONDITIONS = TypeAdapter(dict[str, Condition])

#: By name, in the recipe's order.
Conditions = Annotated[Mapping[str, Condition], PlainValidator(_read), PlainSerializer(_write)]
