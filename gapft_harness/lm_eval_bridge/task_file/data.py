"""Load a task's records: from its own loader, JSON files, or the library ``datasets``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.lm_eval_bridge.task_file.documents import Document, Documents


def resolve_data_files(config: Any, files: Any) -> dict[str, list[str]]:
    """Return ``data_files`` as split -> paths; relative paths start from the YAML's folder."""
    source = (config.metadata or {}).get("config_source", "inline")
    folder = Path.cwd() if source == "inline" else Path(source).resolve().parent
    by_split = files if isinstance(files, Mapping) else {"train": files}
    return {
        split: [
            path if "://" in path else str(folder / path)
            for path in ([paths] if isinstance(paths, str) else paths)
        ]
        for split, paths in by_split.items()
    }


def number_records(rows: Iterable[Any], place: str) -> Documents:
    """Add places to records: their own if they have any, else ``place`` and their number."""
    if isinstance(rows, Documents):
        return rows
    records = [dict(row) for row in rows]
    return Documents(records, [f"{place}, record {n}" for n in range(1, len(records) + 1)])


def to_json_record(row: Mapping[str, Any]) -> Document:
    """Convert a dataset's row to JSON values (a date becomes text)."""
    document: Document = json.loads(json.dumps(dict(row), default=str, ensure_ascii=False))
    return document
