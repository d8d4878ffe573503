"""Read recipe files: YAML, overrides from the command line, and errors that name the key."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from gapft_harness.core.credentials import refuse_credentials
from gapft_harness.core.errors import UserError, describe_error
from gapft_harness.core.text import decode, describe_read_error
from gapft_harness.recipe.conditions import convert_to_mapping
from gapft_harness.recipe.messages import build_recipe_error, find_origin
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import Training


class _Loader(yaml.SafeLoader):
    """YAML loader in which ``1e-4`` is a number, as in YAML 1.2, and duplicate keys are errors."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes a text such as ``1e-4``, which ``_Loader`` reads as a number."""


_FLOAT = (
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(*_FLOAT)
_Dumper.add_implicit_resolver(*_FLOAT)


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe file.

    Raises:
        UserError: the file is missing or malformed, or a key or value is wrong. The message names
            the file, the key, what was found and what was expected.
    """
    return check_recipe(read_recipe(path), f"recipe {path}")


def read_recipe(path: Path, kind: str = "recipe") -> dict[str, Any]:
    """Read the raw content of a recipe's YAML file.

    Args:
        path: the file.
        kind: the name of such a file in messages.

    Raises:
        UserError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{kind} {describe_read_error(path, error)}") from error
    place = f"{kind} {path}"
    content = parse_yaml(decode(data, place), place)
    if not isinstance(content, dict):
        raise UserError(f"{place}: expected a mapping of keys, found {type(content).__name__}")
    return content


def format_recipe(recipe: Recipe) -> str:
    """Write a recipe as YAML, which ``read_recipe`` reads."""
    text: str = yaml.dump(recipe.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False)
    return text


@dataclass(frozen=True, slots=True)
class Setting:
    """A key that the command line sets.

    Attributes:
        option: the option as the user wrote it, for messages.
    """

    key: str
    value: Any
    option: str


def parse_override(text: str) -> Setting:
    """Split ``key.path=value``; the value is YAML.

    Raises:
        UserError: the text does not have this form.
    """
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise UserError(f"--set {text}: expected key=value, e.g. search.k=16")
    return Setting(key.strip(), parse_yaml(value, f"--set {text}"), f"--set {text}")


def parse_yaml(text: str, place: str) -> Any:
    """Parse YAML, of a file or of a value on the command line.

    Raises:
        UserError: it is not YAML; the message begins with ``place``, its origin.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UserError(f"{place}: is not valid YAML: {line}{error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # also a date that does not exist
        raise UserError(f"{place}: is not valid YAML: {describe_error(error)}") from error


def apply_setting(content: dict[str, Any], setting: Setting) -> None:
    """Write a value at a dotted key into a recipe's raw content.

    Raises:
        UserError: a part of the key is a value, not a section.
    """
    node = content
    *parents, last = setting.key.split(".")
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise UserError(
                f"{setting.option}: key {setting.key!r}: {parent!r} is a value, not a section"
            )
        node = child
    node[last] = setting.value


def check_recipe(content: dict[str, Any], source: str, settings: Sequence[Setting] = ()) -> Recipe:
    """Validate a recipe's content.

    Types are strict (``k: true`` and ``k: "8"`` are not numbers); tuples are written as lists, as
    in JSON. API keys are rejected first, so that no message can repeat them.

    Args:
        content: the recipe's content; settings are written into it.
        source: its origin, with which messages about it begin.
        settings: keys set by the command line; later ones override earlier ones. Messages about
            such a key name its option.

    Raises:
        UserError: a key or value is wrong.
    """
    _key_conditions(content)
    for setting in settings:
        apply_setting(content, setting)
        _key_conditions(content)
    model = content.get("model")
    if isinstance(model, dict) and isinstance(model.get("args"), dict):
        refuse_credentials(model["args"], source)
    options = {setting.key: setting.option for setting in settings}
    try:
        recipe = Recipe.model_validate_json(json.dumps(content, default=str), strict=True)
    except TypeError as error:
        raise UserError(f"{source}: a key is not text ({error}); put it in quotes") from error
    except ValidationError as error:
        raise build_recipe_error(error, content, Recipe, source, options) from error
    for name, condition in recipe.conditions.items():
        try:
            recipe.resolve_training(name)
        except ValidationError as error:
            prefix = ("conditions", name, "training")
            raise build_recipe_error(
                error, condition.training, Training, source, options, prefix
            ) from error
    faults = [
        f"{find_origin(key, source, options)}: key {key!r}: {fault}"
        for key, fault in recipe.find_condition_faults().items()
    ]
    if faults:
        raise UserError("\n".join(faults))
    return recipe


def _key_conditions(content: dict[str, Any]) -> None:
    """Convert conditions to a mapping, so that each has a key for overrides and messages."""
    if "conditions" in content:
        content["conditions"] = convert_to_mapping(content["conditions"])
