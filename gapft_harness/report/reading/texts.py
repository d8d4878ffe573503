"""Responses that a report only shows: they are large, so they are read while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.presentation.explorer import ExploredResponse, name_verdict
from gapft_harness.run_directory import layout

#: Rows in memory at a time.
_ROWS = 4096


@dataclass(frozen=True, slots=True)
class AuditTexts:
    """All responses to the audit, in the order of the tables.

    Attributes:
        run_path: the run directory; the caller has checked the hashes of the tables.
    """

    run_path: Path

    @property
    def folder(self) -> Path:
        """The folder of the tables, for messages."""
        return self.run_path / "audit"

    def read_responses(
        self, arm: Arm | None = None
    ) -> Iterator[tuple[str, list[ExploredResponse]]]:
        """Yield problem ids with an arm's responses; without an arm the source's, samples last."""
        table = layout.responses_path("audit") if arm is None else layout.decisions_path(arm)
        columns = ["problem_id", "text", "status", "reason", "answer", "attempts", "reasoning"]
        for name, rows in groupby(self._read_rows(table, columns), key=itemgetter(0)):
            yield (
                name,
                [
                    ExploredResponse(
                        text,
                        name_verdict(status),
                        reason,
                        answer or "",
                        reasoning,
                        [(attempt["text"], attempt["feedback"]) for attempt in attempts],
                    )
                    for _, text, status, reason, answer, attempts, reasoning in rows
                ],
            )

    def _read_rows(self, table: str, columns: list[str]) -> Iterator[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.run_path / table) as file:
            for batch in file.iter_batches(columns=columns, batch_size=_ROWS):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
