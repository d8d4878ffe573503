"""Which task file, and which key of it, a message is about."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.task_file.templates import TemplateFault

SPLIT_KEYS = ("training_split", "validation_split", "test_split", "fewshot_split")


def named(config: Any) -> str:
    """A task in messages: its name and its file, which need not be the one that holds a key."""
    settings = _settings(config)
    metadata = settings.get("metadata")
    source = metadata.get("config_source") if isinstance(metadata, Mapping) else None
    place = f" ({source})" if source and source != "inline" else ""
    return f"task {settings.get('task')}{place}"


@contextlib.contextmanager
def naming_key(config: Any, where: str | None = None) -> Iterator[None]:
    """Adds task, file and key to what is wrong with a template.

    Raises:
        UserError: in place of a ``TemplateFault``.
    """
    try:
        yield
    except TemplateFault as error:
        key = _key_of(_settings(config), error.template)
        found = f"{key}: " if key else ""
        raise UserError(f"{where or named(config)}: {found}{error}") from error


def unknown_split(config: Any, split: str, known: Iterable[str]) -> UserError:
    """The message on a split that the task's data have not."""
    settings = _settings(config)
    key = next((key for key in SPLIT_KEYS if settings.get(key) == split), "fewshot_config.split")
    return UserError(
        f"{named(config)}: {key}: there is no split {split!r}; {did_you_mean(split, known)}"
    )


def yaml_fault(error: yaml.YAMLError, file: Path | str) -> str:
    """File, line and column of what is no YAML, and what is wrong there."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return f"{file}: is not valid YAML: {' '.join(str(error).split())}"
    place = mark.name if Path(mark.name).is_file() else file
    said = getattr(error, "problem", None) or getattr(error, "context", None)
    return f"{place}, line {mark.line + 1}, column {mark.column + 1}: is not valid YAML: {said}"


def means_task(file: Path, name: str) -> bool:
    """Whether a file that cannot be read as YAML is meant to hold the task of this name."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    written = re.search(rf"^task:\s*['\"]?{re.escape(name)}['\"]?\s*(#.*)?$", text, re.MULTILINE)
    return written is not None or file.stem == name


def _settings(config: Any) -> Mapping[str, Any]:
    return config if type(config) is dict else vars(config)


def _key_of(settings: Mapping[str, Any], template: str) -> str:
    """The dotted key that holds a template; "" if none does. The outermost key is the one."""
    level: list[tuple[str, Any]] = list(settings.items())
    while level:
        for key, value in level:
            if isinstance(value, str) and value == template:
                return key
        level = [
            (f"{key}.{inner}", value)
            for key, outer in level
            for inner, value in _members(outer).items()
        ]
    return ""


def _members(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return vars(value) if hasattr(value, "doc_to_text") and not callable(value) else {}
