"""Error messages for a recipe: origin of the value, key, value found, value expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gapft_harness.core.errors import UserError


def build_recipe_error(
    error: ValidationError,
    content: Mapping[str, Any],
    model: type[BaseModel],
    source: str,
    options: Mapping[str, str],
    prefix: Sequence[str] = (),
) -> UserError:
    """Build the error for pydantic's complaints, one line per key.

    Args:
        source: origin of the content, such as ``recipe x.yaml``.
        options: dotted key -> the command-line option that set it, such as ``--set search.kk=3``,
            which replaces the source in the message.
        prefix: the key of the content if it is a part of a recipe.
    """
    complaints_by_key: dict[tuple[str, str], dict[str, Any]] = {}
    faults = error.errors()
    places = [fault["loc"] for fault in faults]
    for problem in faults:
        place = problem["loc"]
        has_inner_fault = any(other[: len(place)] == place != other for other in places)
        if problem["type"] == "too_short" and has_inner_fault:
            continue  # follows from the faults of its parts
        location = _find_location(place, content)
        key = ".".join((*prefix, *location))
        origin = _find_origin(key, source, options, is_joint=problem["type"] == "value_error")
        complaint = _describe_fault(problem, location, model, prefix)
        complaints_by_key.setdefault((origin, key), {})[complaint] = problem["input"]
    lines = []
    for (origin, key), inputs in complaints_by_key.items():
        complaints, value = " or ".join(inputs), next(iter(inputs.values()))
        is_known_key = not complaints.startswith(("unknown key", "missing key"))
        lines.append(
            f"{origin}: key {key!r}: {complaints}; found {value!r:.200}"
            if is_known_key
            else f"{origin}: {complaints}"
        )
    return UserError("\n".join(lines))


def iterate_keys(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every dotted key that holds a value, in order."""
    for name, info in model.model_fields.items():
        section = _find_model(info.annotation)
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


def _find_origin(key: str, source: str, options: Mapping[str, str], is_joint: bool) -> str:
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


def _describe_fault(
    problem: Any, location: Sequence[str], model: type[BaseModel], prefix: Sequence[str]
) -> str:
    key, kind = ".".join((*prefix, *location)), problem["type"]
    if kind == "extra_forbidden":
        return f"unknown key {key!r}; {_suggest_key(location, model, prefix)}"
    if kind == "missing":
        return f"missing key {key!r}"
    if kind in ("tuple_type", "list_type", "too_short"):
        return f"expected a list, e.g. {_format_example(location, model)}"
    if kind == "model_type":
        section = _find_section(location, model)
        key_hint = (
            f" with keys such as {', '.join(list(section.model_fields)[:4])}" if section else ""
        )
        return f"expected a section{key_hint}"
    if kind == "dict_type":
        return "expected keys with values, e.g. {key: value}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{message[0].lower()}{message[1:]}"


def _suggest_key(location: Sequence[str], model: type[BaseModel], prefix: Sequence[str]) -> str:
    """Suggest the nearest key of the section, or a key of this name in another section."""
    *section, last = location
    section_model = _find_section(section, model)
    known_keys = list(section_model.model_fields) if section_model else []
    candidates = [key for key, _ in iterate_keys(model) if key.rpartition(".")[2] == last]
    if matches := difflib.get_close_matches(last, known_keys, n=1, cutoff=0.6):
        candidates = [".".join((*section, matches[0]))]
    full_keys = [".".join((*prefix, key)) for key in candidates]
    hint = f"did you mean {' or '.join(map(repr, full_keys))}? " if full_keys else ""
    return f"{hint}known: {', '.join(sorted(known_keys)) or '(none)'}"


def _format_example(location: Sequence[str], model: type[BaseModel]) -> str:
    section = _find_section(location[:-1], model)
    info = section.model_fields.get(location[-1]) if section else None
    if info is None or (info.is_required() and not info.examples):
        return "[a, b]"
    values = info.examples[0] if info.examples else list(info.default)[:3]
    text: str = yaml.safe_dump(values, default_flow_style=True).strip()
    return text


def _find_section(location: Sequence[str], model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the section at a key, also under a name of a mapping; None if it is not a section."""
    kind: Any = model
    for part in location:
        section = _find_model(kind)
        if section:
            kind = section.model_fields[part].annotation if part in section.model_fields else None
        else:
            kind = get_args(kind)[1] if get_origin(kind) in (Mapping, dict) else None
    return _find_model(kind)


def _find_model(kind: Any) -> type[BaseModel] | None:
    """Return the section that a type is, also an optional one."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
