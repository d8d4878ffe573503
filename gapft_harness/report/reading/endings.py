"""Count in sealed tables how responses ended, and how many of each kind have no answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.truncation import Decodes
from gapft_harness.core.records import GREEDY
from gapft_harness.report.reading.columns import DEPLOYED, read_columns
from gapft_harness.report.reading.tokens import read_response_tokens


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


def read_endings(tables: Mapping[str, Path]) -> dict[str, EndingCounts]:
    """Count the endings of each table of responses or decisions, by its name.

    Args:
        tables: the tables of one run. If no response in any of them has an answer, the verifier is
            assumed not to read answers.
    """
    counts = {name: _count_endings(path) for name, path in tables.items()}
    reads_answers = any(responses != unanswered for responses, unanswered in counts.values())
    return {
        name: EndingCounts(responses, unanswered if reads_answers else None)
        for name, (responses, unanswered) in counts.items()
    }


def read_decodes(table: Path, passed: NDArray[np.bool_]) -> Decodes:
    """Read how the deployment decodes of a table ended.

    Args:
        table: a table of decisions, or of a split's responses.
        passed: whether each decode passed, in the table's order, shape (P,).
    """
    endings = np.array(
        read_columns(table, ("finish_reason",), DEPLOYED)["finish_reason"], dtype=np.str_
    )
    index, tokens = read_response_tokens(table)
    counts = tokens[index == GREEDY]
    return Decodes(passed, endings, counts if counts.any() else None)


def _count_endings(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Count a table's responses, and its responses without an answer, by how they ended."""
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
