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


def explain(
    error: ValidationError,
    content: Mapping[str, Any],
    model: type[BaseModel],
    source: str,
    options: Mapping[str, str],
    under: Sequence[str] = (),
) -> UserError:
    """Build the error for pydantic's complaints, one line per key.

    Args:
        source: origin of the content, such as ``recipe x.yaml``.
        options: dotted key -> the command-line option that set it, such as ``--set search.kk=3``,
            which replaces the source in the message.
        prefix: the key of the content if it is a part of a recipe.
    """
    said: dict[tuple[str, str], dict[str, Any]] = {}
    faults = error.errors()
    places = [fault["loc"] for fault in faults]
    for problem in faults:
        place = problem["loc"]
        within = any(other[: len(place)] == place != other for other in places)
        if problem["type"] == "too_short" and within:
            continue  # follows from the faults of its parts
        location = _location(place, content)
        key = ".".join((*under, *location))
        whose = _whose(key, source, options, of_several=problem["type"] == "value_error")
        complaint = _complaint(problem, location, model, under)
        said.setdefault((whose, key), {})[complaint] = problem["input"]
    lines = []
    for (whose, key), found in said.items():
        complaints, value = " or ".join(found), next(iter(found.values()))
        known = not complaints.startswith(("unknown key", "missing key"))
        lines.append(
            f"{whose}: key {key!r}: {complaints}; found {value!r:.200}"
            if known
            else f"{whose}: {complaints}"
        )
    return UserError("\n".join(lines))


def keys_of(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every dotted key that holds a value, in order."""
    for name, info in model.model_fields.items():
        inner = _section(info)
        if inner is None:
            yield name, info
        else:
            yield from ((f"{name}.{key}", found) for key, found in keys_of(inner))


def _location(keys: Sequence[int | str], content: Mapping[str, Any]) -> list[str]:
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


def _whose(key: str, source: str, options: Mapping[str, str], of_several: bool) -> str:
    """Find the origin of a key: the option that set it or a section around it, else the source."""
    within = [k for k in options if key == k or key.startswith(f"{k}.")]
    if within:
        return options[max(within, key=len)]
    beneath = [options[k] for k in options if k.startswith(f"{key}.")]
    if beneath and not of_several:
        return beneath[0]
    # Several keys contradict each other; the message names them.
    others = list(dict.fromkeys(options.values())) if of_several else []
    return " with ".join(filter(None, (source, " ".join(others))))


def _complaint(
    problem: Any, location: Sequence[str], model: type[BaseModel], under: Sequence[str]
) -> str:
    key, kind = ".".join((*under, *location)), problem["type"]
    if kind == "extra_forbidden":
        return f"unknown key {key!r}; {_nearest(location, model, under)}"
    if kind == "missing":
        return f"missing key {key!r}"
    if kind in ("tuple_type", "list_type", "too_short"):
        return f"expected a list, e.g. {_example(location, model)}"
    if kind == "model_type":
        inner = _at(location, model)
        known = f" with keys such as {', '.join(list(inner.model_fields)[:4])}" if inner else ""
        return f"expected a section{known}"
    if kind == "dict_type":
        return "expected keys with values, e.g. {key: value}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{message[0].lower()}{message[1:]}"


def _nearest(location: Sequence[str], model: type[BaseModel], under: Sequence[str]) -> str:
    """Suggest the nearest key of the section, or a key of this name in another section."""
    *section, last = location
    inner = _at(section, model)
    known = list(inner.model_fields) if inner else []
    elsewhere = [key for key, _ in keys_of(model) if key.rpartition(".")[2] == last]
    if near := difflib.get_close_matches(last, known, n=1, cutoff=0.6):
        elsewhere = [".".join((*section, near[0]))]
    whole = [".".join((*under, key)) for key in elsewhere]
    hint = f"did you mean {' or '.join(map(repr, whole))}? " if whole else ""
    return f"{hint}known: {', '.join(sorted(known)) or '(none)'}"


def _example(location: Sequence[str], model: type[BaseModel]) -> str:
    inner = _at(location[:-1], model)
    info = inner.model_fields.get(location[-1]) if inner else None
    if info is None or (info.is_required() and not info.examples):
        return "[a, b]"
    values = info.examples[0] if info.examples else list(info.default)[:3]
    shown: str = yaml.safe_dump(values, default_flow_style=True).strip()
    return shown


def _at(location: Sequence[str], model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the section at a key; None if it is not a section."""
    found: type[BaseModel] | None = model
    each: type[BaseModel] | None = None  # section under any name of a mapping
    for part in location:
        info = found.model_fields.get(part) if found else None
        found, each = each or (_section(info) if info else None), _each(info) if info else None
    return found


def _section(info: FieldInfo) -> type[BaseModel] | None:
    """Return the section that a field holds, optional ones included; None for a value."""
    several = get_origin(info.annotation) in (Union, UnionType)
    return _first(get_args(info.annotation) if several else (info.annotation,))


def _each(info: FieldInfo) -> type[BaseModel] | None:
    """Return the section under each name of a mapping; None if the field is no such mapping."""
    mapping = get_origin(info.annotation) is Mapping
    return _first(get_args(info.annotation) if mapping else ())


def _first(kinds: Sequence[Any]) -> type[BaseModel] | None:
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
