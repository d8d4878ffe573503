"""Check keys of a task file that lm-eval misreads, drops, or refuses without naming them.

Keys that lm-eval itself refuses by name are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from lm_eval.config.task import TaskConfig

from gapft_harness.core.errors import UserError, refuse_unknown

_OBJECTS = ("generation_kwargs", "fewshot_config", "dataset_kwargs")


def check_keys(config: Mapping[str, Any], where: str) -> None:
    """Check keys of any task, lm-eval's own tasks included.

    Raises:
        UserError: a value has the wrong type.
    """
    for key in _OBJECTS:
        value = config.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise UserError(
                f"{where}: {key}: found {value!r:.60}, expected an object: {{key: ...}}"
            )
    for key, minimum in (("num_fewshot", 0), ("repeats", 1)):
        value = config.get(key)
        if value is not None and (type(value) is not int or value < minimum):
            raise UserError(
                f"{where}: {key}: found {value!r:.60}, expected a whole number from {minimum}"
            )
    # lm-eval converts it to a number, null included.
    temperature = (config.get("generation_kwargs") or {}).get("temperature", 0)
    if not isinstance(temperature, int | float):
        raise UserError(
            f"{where}: generation_kwargs.temperature: found {temperature!r:.60}, "
            "expected a number; remove the key to leave it unset"
        )


def check_gap_task(config: Mapping[str, Any], where: str) -> None:
    """Check the keys of a ``GapTask``: those of any task, and its own.

    Raises:
        UserError: unknown or missing key. (lm-eval refuses unknown keys too, but later: for a
            misspelt ``doc_to_text`` it would report a missing key.)
    """
    refuse_unknown(config, TaskConfig.__dataclass_fields__, where)
    check_keys(config, where)
    if config.get("test_split") is None and config.get("validation_split") is None:
        raise UserError(format_missing_split(where))
    for key, meaning in (("doc_to_text", "the prompt"), ("doc_to_target", "the answer")):
        if config.get(key) is None and config.get("use_prompt") is None:
            raise UserError(
                f"{where}: the key {key!r} is missing; expected {meaning}, as a field's name or a "
                'template, e.g. "{{question}}"'
            )


def format_missing_split(where: str) -> str:
    """Format the message on a task without a split to judge on."""
    return (
        f"{where}: the keys test_split and validation_split are missing; expected one of them, "
        "with the split of the data to judge models on"
    )


def find_repeated_key(file: Path) -> str:
    """Find a duplicate key in a YAML file: its file, line and column; "" if there is none.

    YAML silently uses the last one. Invalid YAML is reported elsewhere.
    """
    try:
        nodes = [yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return ""
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
        if not isinstance(node, yaml.MappingNode):
            continue
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                mark = key.start_mark
                place = f"{file}, line {mark.line + 1}, column {mark.column + 1}"
                return f"{place}: duplicate key {key.value!r}; remove one"
            seen.add(str(key.value))
            nodes.append(value)
    return ""
