"""Name the task file and the key in error messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.task_file.templates import BadTemplate

SPLIT_KEYS = ("training_split", "validation_split", "test_split", "fewshot_split")


def describe_task(config: Any) -> str:
    """Return a task's name and file for messages; a key may be in a file that it includes."""
    settings = _as_mapping(config)
    metadata = settings.get("metadata")
    source = metadata.get("config_source") if isinstance(metadata, Mapping) else None
    place = f" ({source})" if source and source != "inline" else ""
    return f"task {settings.get('task')}{place}"


@contextlib.contextmanager
def name_key_in_errors(config: Any, where: str | None = None) -> Iterator[None]:
    """Add task, file and key to errors of templates.

    Raises:
        UserError: instead of a ``BadTemplate``.
    """
    try:
        yield
    except BadTemplate as error:
        key = _find_key(_as_mapping(config), error.template)
        key_text = f"{key}: " if key else ""
        raise UserError(f"{where or describe_task(config)}: {key_text}{error}") from error


def unknown_split_error(config: Any, split: str, splits: Iterable[str]) -> UserError:
    """Build the error for a split that the task's data lack."""
    settings = _as_mapping(config)
    key = next((key for key in SPLIT_KEYS if settings.get(key) == split), "fewshot_config.split")
    return UserError(
        f"{describe_task(config)}: {key}: unknown split {split!r}; {did_you_mean(split, splits)}"
    )


def format_yaml_error(error: yaml.YAMLError, file: Path | str) -> str:
    """Format a YAML error with file, line and column."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return f"{file}: invalid YAML: {' '.join(str(error).split())}"
    place = mark.name if Path(mark.name).is_file() else file
    problem = getattr(error, "problem", None) or getattr(error, "context", None)
    return f"{place}, line {mark.line + 1}, column {mark.column + 1}: invalid YAML: {problem}"


def is_meant_for_task(file: Path, name: str) -> bool:
    """Return whether an invalid YAML file probably defines the task of this name."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    written = re.search(rf"^task:\s*['\"]?{re.escape(name)}['\"]?\s*(#.*)?$", text, re.MULTILINE)
    return written is not None or file.stem == name


def _as_mapping(config: Any) -> Mapping[str, Any]:
    return config if type(config) is dict else vars(config)


def _find_key(settings: Mapping[str, Any], template: str) -> str:
    """Find the dotted key that holds a template, the outermost if several; "" if none does."""
    level: list[tuple[str, Any]] = list(settings.items())
    while level:
        for key, value in level:
            if isinstance(value, str) and value == template:
                return key
        level = [
            (f"{key}.{inner}", value)
            for key, outer in level
            for inner, value in _list_members(outer).items()
        ]
    return ""


def _list_members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return vars(value) if hasattr(value, "doc_to_text") and not callable(value) else {}
