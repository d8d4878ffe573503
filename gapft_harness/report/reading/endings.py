"""Count in a run's tables how responses ended, and how many have no answer."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from gapft_harness.core.records import CONTEXT_EXCEEDED, SOURCE, STOP_STRING
from gapft_harness.presentation.content import Row
from gapft_harness.report.reading.columns import DEPLOYED

#: Columns of the counts by ``finish_reason`` (``records.FINISH_REASONS``).
_REASONS = {
    "end_token": "stop",
    "stop_string": STOP_STRING,
    "limit": "length",
    "unknown": "unknown",
    "not_generated": CONTEXT_EXCEEDED,
}


def read_endings(tables: Mapping[str, Path], reads_answers: bool = False) -> dict[str, Row]:
    """Count the endings of each table of responses or decisions, as a row by its name.

    Args:
        tables: the tables of one run; of that of ``SOURCE``, only deployment decodes are counted.
        reads_answers: whether the verifier is known to read answers; otherwise it is assumed to
            read them if any response has one, and no answers are counted if none has.
    """
    counts = {name: _count_endings(path, name == SOURCE) for name, path in tables.items()}
    reads_answers |= any(responses != unanswered for responses, unanswered in counts.values())
    rows: dict[str, Row] = {}
    for name, (responses, unanswered) in counts.items():
        cut = unanswered.get(STOP_STRING, 0) + unanswered.get("length", 0)
        rows[name] = {
            "of": name,
            **{column: responses.get(reason, 0) for column, reason in _REASONS.items()},
            "limit_share": Fraction(responses.get("length", 0), sum(responses.values())),
            "cut_unanswered": cut if reads_answers else None,
            "unanswered": sum(unanswered.values()) if reads_answers else None,
        }
    return rows


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
