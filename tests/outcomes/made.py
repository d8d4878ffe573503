"""Logs of other programs, under their original names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq

WRITTEN = Path(__file__).with_name("written")


def copy_details(folder: Path, name: str) -> Path:
    """Create a folder with lighteval details, under lighteval's file names."""
    folder.mkdir()
    (record,) = pq.read_table(WRITTEN / f"{name}.parquet")[:1].to_pylist()
    task = record["doc"]["task_name"]
    file = folder / f"details_{task}_2026-01-01T00-00-00.000001.parquet"
    shutil.copy(WRITTEN / f"{name}.parquet", file)
    return folder
