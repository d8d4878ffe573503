"""Columns of a run's sealed tables, and verdicts as codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import STATUSES as STATUSES
from gapft_harness.run_directory.tables import sealed_status

# Verdicts have codes in the order of ``STATUSES``.
PASS = STATUSES.index("pass")


def columns(
    path: Path, names: Sequence[str], filters: list[tuple[str, str, Any]] | None = None
) -> dict[str, list[Any]]:
    """Reads the named columns of a Parquet file, each as a list.

    Raises:
        GapftError: the file holds a verdict that is none.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(names), filters=filters)
    found = {name: table[name].to_pylist() for name in names}
    for status in sorted(set(found.get("status", ())) - {*STATUSES}, key=str):
        sealed_status(status, path)
    return found


def codes(statuses: Sequence[str]) -> NDArray[np.uint8]:
    """Statuses as their codes, shape (P,)."""
    code = {str(name): number for number, name in enumerate(STATUSES)}
    return np.fromiter((code[s] for s in statuses), dtype=np.uint8, count=len(statuses))


def count_codes(found: NDArray[np.uint8]) -> dict[str, int]:
    """How many codes there are of each status."""
    counts = np.bincount(found, minlength=len(STATUSES))
    return {name: int(count) for name, count in zip(STATUSES, counts, strict=True)}
