"""Read columns of a run's tables, and verdicts as codes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import GREEDY, STATUSES
from gapft_harness.run_directory.tables import parse_status

# Verdicts have codes in the order of ``STATUSES``.
PASS = STATUSES.index("pass")

#: Characters shown of a gold answer that is not plain text.
MAX_GOLD_CHARS = 2000

#: The filter that selects the deployment decode of each problem of a table.
DEPLOYED: list[tuple[str, str, Any]] = [("index", "==", GREEDY)]


def read_columns(
    path: Path, names: Sequence[str], filters: list[tuple[str, str, Any]] | None = None
) -> dict[str, list[Any]]:
    """Read the named columns of a Parquet file, each as a list.

    Args:
        path: a table of a run.
        names: the columns.
        filters: filters of pyarrow, such as ``DEPLOYED``; None: all rows.

    Raises:
        GapftError: the file contains an unknown status of a verdict.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=list(names), filters=filters)
    values = {name: table[name].to_pylist() for name in names}
    for status in sorted(set(values.get("status", ())) - {*STATUSES}, key=str):
        parse_status(status, path)
    return values


def codes(statuses: Sequence[str]) -> NDArray[np.uint8]:
    """Convert statuses of verdicts to codes, shape (P,).

    Args:
        statuses: names in ``STATUSES``; a code is the position of the name.
    """
    code = {str(name): number for number, name in enumerate(STATUSES)}
    return np.fromiter((code[s] for s in statuses), dtype=np.uint8, count=len(statuses))


def count_codes(status_codes: NDArray[np.uint8]) -> dict[str, int]:
    """Count the codes of each status, by the name of the status.

    Args:
        status_codes: codes of verdicts, shape (P,).
    """
    counts = np.bincount(status_codes, minlength=len(STATUSES))
    return {name: int(count) for name, count in zip(STATUSES, counts, strict=True)}


def format_gold(gold: str) -> str:
    """Format a gold answer for people: a JSON string without its quotes, other values as JSON.

    A program's public tests are shown and its hidden tests are only counted, because the readers of
    a report may write the next prompt. Other objects are cut at ``MAX_GOLD_CHARS`` characters.
    """
    value = json.loads(gold)
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and {"kind", "tests", "public"} <= value.keys():
        public = value["tests"][: value["public"]]
        test_count = len(value["tests"])
        hidden = "" if test_count == len(public) else f" and {test_count - len(public)} hidden ones"
        packed = ", more hidden ones packed" if value.get("hidden") else ""
        gold = f"{json.dumps(public, ensure_ascii=False)} as public tests{hidden}{packed}"
    return gold if len(gold) <= MAX_GOLD_CHARS else f"{gold[:MAX_GOLD_CHARS]}…"
