"""Recipe files: reading YAML, overrides from the command line, and messages for mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gapft_harness.credentials import refuse_credentials
from gapft_harness.errors import UserError, did_you_mean
from gapft_harness.recipe import Recipe


class _Loader(yaml.SafeLoader):
    """YAML as people write it: ``1e-4`` is a number, as in YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads and checks a recipe file.

    Args:
        path: the YAML file.
        overrides: ``key.path=value`` strings; values are YAML.

    Raises:
        UserError: the file is missing or malformed, or a key or value is wrong. The message names
            the file, the key, what was found and what was expected.
    """
    content = read_recipe(path)
    for override in overrides:
        set_key(content, *parse_override(override))
    return check_recipe(content, source=f"recipe {path}")


def read_recipe(path: Path | str) -> dict[str, Any]:
    """Reads a recipe's raw content.

    Args:
        path: the YAML file; as text, a URL of any protocol that fsspec knows.

    Raises:
        UserError: the file cannot be read, or is no YAML mapping.
    """
    try:
        text = _content(path).decode("utf-8")
    except Exception as error:  # each protocol raises errors of its own
        raise UserError(
            f"recipe {path}: cannot be read ({type(error).__name__}: {_one_line(error)})"
        ) from error
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise UserError(f"recipe {path}: is not valid YAML: {_one_line(error)}") from error
    if not isinstance(content, dict):
        raise UserError(
            f"recipe {path}: expected a mapping of keys, found {type(content).__name__}"
        )
    return content


def _content(path: Path | str) -> bytes:
    if isinstance(path, Path):
        return path.read_bytes()
    import fsspec

    with fsspec.open(path) as file:
        content: bytes = file.read()
    return content


def parse_override(text: str) -> tuple[str, Any]:
    """Splits ``key.path=value``; the value is YAML.

    Raises:
        UserError: it has no such form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"--set {text}: expected key=value, e.g. search.k=16")
    try:
        return key, yaml.load(value, _Loader)
    except yaml.YAMLError as error:
        raise UserError(f"--set {text}: value is not YAML: {_one_line(error)}") from error


def set_key(content: dict[str, Any], key: str, value: Any) -> None:
    """Writes one value at a dotted key into a recipe's raw content.

    Raises:
        UserError: a part of the key is a value, not a section.
    """
    node = content
    *parents, last = key.split(".")
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise UserError(f"key {key!r}: {parent!r} is a value, not a section")
        node = child
    node[last] = value


def check_recipe(content: dict[str, Any], source: str) -> Recipe:
    """Validates a recipe's content; ``source`` begins every error message.

    Types are strict (``k: true`` and ``k: "8"`` are no numbers); lists stand for tuples, as in
    JSON. Keys of servers are refused before anything else could repeat them.
    """
    model = content.get("model")
    if isinstance(model, dict) and isinstance(model.get("args"), dict):
        refuse_credentials(model["args"], source)
    try:
        return Recipe.model_validate_json(json.dumps(content, default=str), strict=True)
    except ValidationError as error:
        raise UserError(
            "\n".join(f"{source}: {_explain(problem)}" for problem in error.errors())
        ) from error


def recipe_keys() -> dict[str, str]:
    """Every key of a recipe with its description, in order: the source of docs/recipes.md."""
    keys: dict[str, str] = {}

    def visit(model: type[BaseModel], prefix: str) -> None:
        for name, info in model.model_fields.items():
            inner = _section(info)
            if inner is not None:
                visit(inner, f"{prefix}{name}.")
            else:
                keys[f"{prefix}{name}"] = info.description or ""

    visit(Recipe, "")
    return keys


def _explain(problem: Any) -> str:
    """One line for one of pydantic's complaints: the key, what was found, what was expected."""
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = _siblings(location[:-1])
        return f"unknown key {key!r}; {did_you_mean(location[-1], known)}"
    if problem["type"] == "missing":
        return f"missing key {key!r}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"key {key!r}: {message[0].lower()}{message[1:]}; found {problem['input']!r}"


def _siblings(location: Sequence[str]) -> list[str]:
    """The keys a section of the recipe has."""
    model: type[BaseModel] = Recipe
    for part in location:
        info = model.model_fields.get(part)
        inner = _section(info) if info is not None else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _section(info: FieldInfo) -> type[BaseModel] | None:
    """The section that a key holds, also one that may be left out; None for a value."""
    kinds = (info.annotation, *get_args(info.annotation))
    sections = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
    return sections[0] if sections else None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
