"""Count in a run's tables how responses ended, and how many of each kind have no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.core.records import SOURCE
from gapft_harness.report.reading.columns import DEPLOYED


@dataclass(frozen=True, slots=True)
class EndingCounts:
    """Counts of a table's responses by how they ended.

    Attributes:
        responses: by ``finish_reason`` (``records.FINISH_REASONS``).
        unanswered: the responses among these without an answer; None where the verifier does not
            read answers.
    """

    responses: Mapping[str, int]
    unanswered: Mapping[str, int] | None


def read_endings(
    tables: Mapping[str, Path], reads_answers: bool = False
) -> dict[str, EndingCounts]:
    """Count the endings of each table of responses or decisions, by its name.

    Args:
        tables: the tables of one run; of that of ``SOURCE``, only deployment decodes are counted.
        reads_answers: whether the verifier is known to read answers; otherwise it is assumed to
            read them if any response has one.
    """
    counts = {name: _count_endings(path, name == SOURCE) for name, path in tables.items()}
    reads_answers |= any(responses != unanswered for responses, unanswered in counts.values())
    return {
        name: EndingCounts(responses, unanswered if reads_answers else None)
        for name, (responses, unanswered) in counts.items()
    }


def _count_endings(path: Path, deployed_only: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Count a table's responses, and its responses without an answer, by how they ended."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    filters = DEPLOYED if deployed_only else None
    table = pq.read_table(path, columns=["finish_reason", "answer"], filters=filters)
    table = table.append_column("unanswered", pc.is_null(table["answer"]))
    grouped = table.group_by("finish_reason").aggregate([("unanswered", "sum"), ([], "count_all")])
    rows = sorted(grouped.to_pylist(), key=lambda row: row["finish_reason"])
    return (
        {row["finish_reason"]: row["count_all"] for row in rows},
        {row["finish_reason"]: row["unanswered_sum"] for row in rows},
    )
