"""Check keys of a task file that lm-eval misreads or drops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.core.errors import UserError

#: Values of ``dataset_path`` that are file formats of ``datasets``, not datasets of the hub.
_FILE_FORMATS = ("json", "csv", "parquet", "text", "arrow", "xml", "pandas")


def check_keys(config: Mapping[str, Any], where: str) -> None:
    """Check keys of any task, lm-eval's own tasks included.

    Raises:
        UserError: a count is not a whole number, or the data files are not named: ``datasets``
            would read all files of the current directory.
    """
    for key, minimum in (("num_fewshot", 0), ("repeats", 1)):
        value = config.get(key)
        if value is not None and (type(value) is not int or value < minimum):
            raise UserError(
                f"{where}: {key}: found {value!r:.60}, expected a whole number from {minimum}"
            )
    named = {"data_files", "data_dir"} & set(config.get("dataset_kwargs") or {})
    if config.get("dataset_path") in _FILE_FORMATS and not named:
        raise UserError(
            f"{where}: dataset_kwargs: the key 'data_files' is missing; expected e.g. "
            "{data_files: {train: pool.jsonl, test: audit.jsonl}}"
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
