"""How responses ended, and how many of each kind gave no answer, counted in sealed tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Endings:
    """Counts of a table's responses by how they ended.

    Attributes:
        responses: by ``finish_reason`` (``records.FINISH_REASONS``).
        unanswered: of those, how many gave no answer; None where the verifier reads none at all.
    """

    responses: Mapping[str, int]
    unanswered: Mapping[str, int] | None


def read_endings(tables: Mapping[str, Path]) -> dict[str, Endings]:
    """Count the endings of each table of responses or decisions, by its name.

    Args:
        tables: those of one run; if no response of any has an answer, none is read.
    """
    counts = {name: _count(path) for name, path in tables.items()}
    reads_answers = any(responses != unanswered for responses, unanswered in counts.values())
    return {
        name: Endings(responses, unanswered if reads_answers else None)
        for name, (responses, unanswered) in counts.items()
    }


def _count(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Count a table's responses, and those without an answer."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["finish_reason", "answer"])
    table = table.append_column("unanswered", pc.is_null(table["answer"]))
    grouped = table.group_by("finish_reason").aggregate([("unanswered", "sum"), ([], "count_all")])
    rows = sorted(grouped.to_pylist(), key=lambda row: row["finish_reason"])
    return (
        {row["finish_reason"]: row["count_all"] for row in rows},
        {row["finish_reason"]: row["unanswered_sum"] for row in rows},
    )
