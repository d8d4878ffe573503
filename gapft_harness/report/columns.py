"""Columns of a run's sealed tables, and verdicts as codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Verdict statuses in the order of their codes: ``STATUSES[code]``.
STATUSES = ("pass", "fail", "timeout", "error")
PASS = STATUSES.index("pass")


def columns(
    path: Path, names: Sequence[str], filters: list[tuple[str, str, Any]] | None = None
) -> dict[str, list[Any]]:
    """Reads the named columns of a Parquet file, each as a list."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(names), filters=filters)
    return {name: table[name].to_pylist() for name in names}


def codes(statuses: Sequence[str]) -> NDArray[np.uint8]:
    """Statuses as their codes, shape (P,)."""
    code = {name: number for number, name in enumerate(STATUSES)}
    return np.fromiter((code[s] for s in statuses), dtype=np.uint8, count=len(statuses))


def count_codes(found: NDArray[np.uint8]) -> dict[str, int]:
    """How many codes there are of each status."""
    counts = np.bincount(found, minlength=len(STATUSES))
    return {name: int(count) for name, count in zip(STATUSES, counts, strict=True)}
