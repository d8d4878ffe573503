"""Error messages for a recipe: origin of the value, key, value expected, value found."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import yaml
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
            text += f"; a valid list: {_format_example(location, model)}"
        origin = find_origin(key, source, options, is_joint=fault["type"] == "value_error")
        lines.append(f"{origin}: {text}")
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


def find_origin(key: str, source: str, options: Mapping[str, str], *, is_joint: bool) -> str:
    """Find the origin of a key: the option that set it or a section around it, else the source."""
    enclosing = [k for k in options if key == k or key.startswith(f"{k}.")]
    if enclosing:
        return options[max(enclosing, key=len)]
    inner = [options[k] for k in options if k.startswith(f"{key}.")]
    if inner and not is_joint:
        return inner[0]
    # Several keys contradict each other; the message names them.
    others = list(dict.fromkeys(options.values())) if is_joint else []
    return " with ".join(filter(None, (source, " ".join(others))))


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


def _format_example(location: Sequence[str], model: type[BaseModel]) -> str:
    info = _find_section(location[:-1], model).model_fields.get(location[-1])
    if info is None or (info.is_required() and not info.examples):
        return "[a, b]"
    values = info.examples[0] if info.examples else list(info.default)[:3]
    return str(yaml.safe_dump(values, default_flow_style=True)).strip()


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
