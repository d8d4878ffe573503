"""Load a task's records: from its own loader, JSON files, or the library ``datasets``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.hooks.registration import find_setting_fault
from gapft_harness.lm_eval_bridge.task_file.documents import Document, Documents
from gapft_harness.lm_eval_bridge.task_file.faults import describe_task, unknown_split_error

#: Values of ``dataset_path`` that are file formats of ``datasets``, not datasets of the hub.
FILE_FORMATS = ("json", "csv", "parquet", "text", "arrow", "xml", "pandas")


def load_custom(config: Any, options: Mapping[str, Any]) -> Any:
    """Call the task's ``custom_dataset`` with its ``dataset_kwargs``.

    Raises:
        UserError: unknown or missing key.
    """
    if fault := find_setting_fault(config.custom_dataset, options):
        raise UserError(f"{describe_task(config)}: dataset_kwargs: {fault}")
    return config.custom_dataset(**options)


def resolve_data_files(config: Any, files: Any) -> dict[str, list[str]]:
    """Return ``data_files`` as split -> paths; relative paths start from the YAML's folder.

    Raises:
        UserError: ``data_files`` is not a path, a list of paths, or an object of these.
    """
    source = (config.metadata or {}).get("config_source", "inline")
    folder = Path.cwd() if source == "inline" else Path(source).resolve().parent
    by_split = files if isinstance(files, Mapping) else {"train": files}
    for split, paths in by_split.items():
        listed = [paths] if isinstance(paths, str) else paths
        if not isinstance(listed, list | tuple) or not all(isinstance(p, str) for p in listed):
            raise UserError(
                f"{describe_task(config)}: dataset_kwargs.data_files.{split}: found {paths!r:.60}, "
                "expected a file or a list of files, e.g. {train: pool.jsonl, test: audit.jsonl}"
            )
    return {
        split: [
            path if "://" in path else str(folder / path)
            for path in ([paths] if isinstance(paths, str) else paths)
        ]
        for split, paths in by_split.items()
    }


def process_documents(config: Any, documents: Any) -> Any:
    """Apply the task's ``process_docs`` to a split's records.

    Raises:
        UserError: it raised, or returned no records.
    """
    where = f"{describe_task(config)}: process_docs"
    try:
        result = config.process_docs(documents)
    except Exception as error:
        raise UserError(f"{where}: failed: {type(error).__name__}: {error}") from error
    if result is None or (isinstance(result, Sized) and not len(result)):
        raise UserError(f"{where}: returned {result!r:.40}, expected the split's records")
    return result


def number_records(rows: Iterable[Any], place: str) -> Documents:
    """Add places to records: their own if they have any, else ``place`` and their number."""
    if isinstance(rows, Documents):
        return rows
    records = [dict(row) for row in rows]
    return Documents(records, [f"{place}, record {n}" for n in range(1, len(records) + 1)])


def read_json_rows(task: Any, split: str, read: Callable[[], Iterable[Any]]) -> list[Document]:
    """Read a split of one of lm-eval's own tasks as JSON values.

    Raises:
        UserError: unknown split.
    """
    try:
        return [to_json_record(row) for row in read()]
    except KeyError as error:
        if error.args != (split,):
            raise
        raise unknown_split_error(task.config, split, task.dataset) from error


def to_json_record(row: Mapping[str, Any]) -> Document:
    """Convert a dataset's row to JSON values (a date becomes text)."""
    document: Document = json.loads(json.dumps(dict(row), default=str, ensure_ascii=False))
    return document


def require_files(where: str, path: Any, options: Any) -> None:
    """Check that a task on local files names them; ``datasets`` would search the whole directory.

    Raises:
        UserError: ``data_files`` and ``data_dir`` are missing.
    """
    if path in FILE_FORMATS and not {"data_files", "data_dir"} & set(options or {}):
        keys = [*map(str, options or {})]
        raise UserError(
            f"{where}: dataset_kwargs: the key 'data_files' is missing; "
            f"{did_you_mean('data_files', keys)}; expected e.g. "
            "{data_files: {train: pool.jsonl, test: audit.jsonl}}"
        )
