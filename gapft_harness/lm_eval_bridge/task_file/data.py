"""Where a task's records come from: its own loader, JSON files, or the library ``datasets``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.hooks.registered import setting_fault
from gapft_harness.lm_eval_bridge.task_file.documents import Document, Documents
from gapft_harness.lm_eval_bridge.task_file.faults import named, unknown_split

#: Formats that ``datasets`` reads from files, rather than a dataset of the hub.
FILE_FORMATS = ("json", "csv", "parquet", "text", "arrow", "xml", "pandas")


def load_custom(config: Any, options: Mapping[str, Any]) -> Any:
    """Calls the task's ``custom_dataset`` with its ``dataset_kwargs``.

    Raises:
        UserError: a key is none that the loader takes, or one is missing.
    """
    if fault := setting_fault(config.custom_dataset, options):
        raise UserError(f"{named(config)}: dataset_kwargs: {fault}")
    return config.custom_dataset(**options)


def beside_the_yaml(config: Any, files: Any) -> dict[str, list[str]]:
    """``data_files`` as split -> paths, relative ones joined with the YAML's folder.

    Raises:
        UserError: it is neither a path, nor paths, nor an object of such.
    """
    source = (config.metadata or {}).get("config_source", "inline")
    folder = Path.cwd() if source == "inline" else Path(source).resolve().parent
    by_split = files if isinstance(files, Mapping) else {"train": files}
    for split, paths in by_split.items():
        listed = [paths] if isinstance(paths, str) else paths
        if not isinstance(listed, list | tuple) or not all(isinstance(p, str) for p in listed):
            raise UserError(
                f"{named(config)}: dataset_kwargs.data_files.{split}: found {paths!r:.60}, "
                "expected a file or a list of files, e.g. {train: pool.jsonl, test: audit.jsonl}"
            )
    return {
        split: [
            path if "://" in path else str(folder / path)
            for path in ([paths] if isinstance(paths, str) else paths)
        ]
        for split, paths in by_split.items()
    }


def processed(config: Any, documents: Any) -> Any:
    """What the task's ``process_docs`` makes of a split's records.

    Raises:
        UserError: it raised, or gave back no record.
    """
    where = f"{named(config)}: process_docs"
    try:
        found = config.process_docs(documents)
    except Exception as error:
        raise UserError(f"{where}: failed: {type(error).__name__}: {error}") from error
    if found is None or (isinstance(found, Sized) and not len(found)):
        raise UserError(f"{where}: gave back {found!r:.40}, expected the split's records")
    return found


def numbered(rows: Iterable[Any], place: str) -> Documents:
    """Records with their places: their own where they have some, else their numbers."""
    if isinstance(rows, Documents):
        return rows
    records = [dict(row) for row in rows]
    return Documents(records, [f"{place}, record {n}" for n in range(1, len(records) + 1)])


def json_rows(task: Any, split: str, read: Callable[[], Iterable[Any]]) -> list[Document]:
    """A split of one of lm-eval's own tasks, as JSON values.

    Raises:
        UserError: the task's data have no such split.
    """
    try:
        return [json_row(row) for row in read()]
    except KeyError as error:
        if error.args != (split,):
            raise
        raise unknown_split(task.config, split, task.dataset) from error


def json_row(row: Mapping[str, Any]) -> Document:
    """A dataset's row as JSON values (a date becomes its text)."""
    document: Document = json.loads(json.dumps(dict(row), default=str, ensure_ascii=False))
    return document


def require_files(where: str, path: Any, options: Any) -> None:
    """Hold a task on files to name some: the library would search the whole working directory.

    Raises:
        UserError: it names none.
    """
    if path in FILE_FORMATS and not {"data_files", "data_dir"} & set(options or {}):
        found = [*map(str, options or {})]
        raise UserError(
            f"{where}: dataset_kwargs: the key 'data_files' is missing; "
            f"{did_you_mean('data_files', found)}; expected e.g. "
            "{data_files: {train: pool.jsonl, test: audit.jsonl}}"
        )
