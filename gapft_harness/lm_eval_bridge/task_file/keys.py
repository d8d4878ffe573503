"""Keys of a task file that lm-eval misreads, drops, or refuses without naming them.

What lm-eval itself refuses by name is left to it.
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
    """Checks what every task has to hold to, lm-eval's own too.

    Raises:
        UserError: a value is of a wrong kind.
    """
    for key in _OBJECTS:
        found = config.get(key)
        if found is not None and not isinstance(found, Mapping):
            raise UserError(
                f"{where}: {key}: found {found!r:.60}, expected an object: {{key: ...}}"
            )
    for key, least in (("num_fewshot", 0), ("repeats", 1)):
        found = config.get(key)
        if found is not None and (type(found) is not int or found < least):
            raise UserError(
                f"{where}: {key}: found {found!r:.60}, expected a whole number from {least}"
            )
    # lm-eval makes a number of it, of null too.
    temperature = (config.get("generation_kwargs") or {}).get("temperature", 0)
    if not isinstance(temperature, int | float):
        raise UserError(
            f"{where}: generation_kwargs.temperature: found {temperature!r:.60}, "
            "expected a number; take it out where it is not set"
        )


def check_gap_task(config: Mapping[str, Any], where: str) -> None:
    """Checks what a ``GapTask`` has to hold to besides.

    Raises:
        UserError: a key is unknown, or one is missing. (lm-eval refuses unknown keys too, but
            only after what they lead to: a misspelt ``doc_to_text`` would be missing.)
    """
    refuse_unknown(config, TaskConfig.__dataclass_fields__, where)
    check_keys(config, where)
    if config.get("test_split") is None and config.get("validation_split") is None:
        raise UserError(no_split(where))
    for key, what in (("doc_to_text", "the prompt"), ("doc_to_target", "the answer")):
        if config.get(key) is None and config.get("use_prompt") is None:
            raise UserError(
                f"{where}: the key {key!r} is missing; expected {what}, as a field's name or a "
                'template, e.g. "{{question}}"'
            )


def no_split(where: str) -> str:
    """The message on a task without a split to judge on."""
    return (
        f"{where}: the keys test_split and validation_split are missing; expected one of them, "
        "with the split of the data to judge on"
    )


def repeated_key(file: Path) -> str:
    """File, line and column of a key that stands twice in a YAML file; "" if none does.

    YAML takes the last one without a word. What is no YAML is not this function's affair.
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
                return f"{place}: the key {key.value!r} stands twice"
            seen.add(str(key.value))
            nodes.append(value)
    return ""
