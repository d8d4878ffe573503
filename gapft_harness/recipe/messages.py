"""Error messages for a recipe: origin of the value, key, value expected, value found."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gapft_harness.core.errors import UserError
from gapft_harness.core.validation import describe_fault


def build_recipe_error(
    error: ValidationError,
    content: Mapping[str, Any],
    model: type[BaseModel],
    source: str,
    options: Mapping[str, str],
    prefix: Sequence[str] = (),
) -> UserError:
    """Build the error for pydantic's complaints, a line for each.

    Args:
        error: the complaints.
        content: what was validated.
        model: the section that it was validated as.
        source: origin of the content, such as ``recipe x.yaml``.
        options: dotted key -> the command-line option that set it, such as ``--set search.kk=3``,
            which replaces the source in the message.
        prefix: the key of the content if it is a part of a recipe.
    """
    lines = []
    for fault in error.errors():
        location = _find_location(fault["loc"], content)
        full_location = (*prefix, *location)
        key = ".".join(full_location)
        if fault["type"] == "extra_forbidden":
            text = f"unknown key {key!r}; {_suggest_key(location, model, prefix)}"
        elif fault["type"] == "missing":
            text = f"missing key {key!r}"
        else:
            text = describe_fault(fault, full_location)
        if fault["type"] in ("tuple_type", "list_type"):
            text += "; a list is written as [a, b]"
        lines.append(f"{find_origin(key, source, options)}: {text}")
    return UserError("\n".join(dict.fromkeys(lines)))


def iterate_keys(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every dotted key that holds a value, in order."""
    for name, info in model.model_fields.items():
        section = _unwrap_section(info.annotation)
        if section is None:
            yield name, info
        else:
            yield from ((f"{name}.{key}", field) for key, field in iterate_keys(section))


def _find_location(keys: Sequence[int | str], content: Mapping[str, Any]) -> list[str]:
    """Return the parts of a key, without the type names that pydantic adds."""
    location: list[str] = []
    value: Any = content
    for part in keys:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            break
        location.append(str(part))
    return location


def find_origin(key: str, source: str, options: Mapping[str, str]) -> str:
    """Return the last option that set a key, or a section around it or in it; else the source."""
    parts = key.split(".")
    for name, option in reversed([*options.items()]):
        option_parts = name.split(".")
        shared = min(len(parts), len(option_parts))
        if parts[:shared] == option_parts[:shared]:
            return option
    return source


def _suggest_key(location: Sequence[str], model: type[BaseModel], prefix: Sequence[str]) -> str:
    """Suggest the nearest key of the section, or a key of this name in another section."""
    *section, last = location
    known_keys = list(_find_section(section, model).model_fields)
    if matches := difflib.get_close_matches(last, known_keys, n=1):
        candidates = [".".join((*section, matches[0]))]
    else:
        candidates = [key for key, _ in iterate_keys(model) if key.rpartition(".")[2] == last]
    full_keys = [repr(".".join((*prefix, key))) for key in candidates]
    hint = f"did you mean {' or '.join(full_keys)}? " if full_keys else ""
    return f"{hint}known: {', '.join(sorted(known_keys)) or '(none)'}"


def _find_section(location: Sequence[str], model: type[BaseModel]) -> type[BaseModel]:
    """Return the section at a key, or else the section around it."""
    section: type[BaseModel] = model
    kind: Any = model
    for part in location:
        if get_origin(kind) in (dict, Mapping):  # the part is a name that the recipe gives
            kind = get_args(kind)[1]
        elif (holder := _unwrap_section(kind)) and part in holder.model_fields:
            kind = holder.model_fields[part].annotation
        else:  # within a value
            return section
        section = _unwrap_section(kind) or section
    return section


def _unwrap_section(kind: Any) -> type[BaseModel] | None:
    """Return the section that a type is, also an optional one; None for any other type."""
    if get_origin(kind) in (dict, Mapping):
        return None
    kinds = (kind, *get_args(kind))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
