"""Texts that a report only shows: they are large, so they are read while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.run_directory import layout

#: Rows in memory at a time: a document may contain megabytes of packed tests.
_DOCUMENTS, _RESPONSES = 64, 4096


@dataclass(frozen=True, slots=True)
class Judging:
    """Details of a response besides its text and its verdict.

    Attributes:
        reason: the verifier's reason for the verdict.
        answer: the answer that the verifier read.
        attempts: earlier attempts of the episode: the text, and the feedback to the model.
        reasoning: the reasoning that came apart from the text.
    """

    reason: str = ""
    answer: str = ""
    attempts: Sequence[tuple[str, str]] = ()
    reasoning: str = ""


#: A response: its text and its details.
JudgedText = tuple[str, Judging]


@dataclass(frozen=True, slots=True)
class AuditTexts:
    """The audit's records and all responses to it, in the order of the sealed tables.

    Attributes:
        run_path: the run directory; the caller has checked the hashes of the tables.
    """

    run_path: Path

    @property
    def folder(self) -> Path:
        """The folder of the tables, for messages."""
        return self.run_path / "audit"

    def read_documents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield problem ids with the benchmark's records."""
        columns = ["problem_id", "document"]
        for name, document in self._read_rows(layout.problems_path("audit"), columns, _DOCUMENTS):
            yield name, json.loads(document)

    def read_responses(self, arm: Arm | None = None) -> Iterator[tuple[str, list[JudgedText]]]:
        """Yield problem ids with an arm's responses; without an arm the source's, samples last."""
        table = layout.responses_path("audit") if arm is None else layout.decisions_path(arm)
        columns = ["problem_id", "text", "reason", "answer", "attempts", "reasoning"]
        for name, rows in groupby(self._read_rows(table, columns, _RESPONSES), key=itemgetter(0)):
            yield (
                name,
                [
                    (
                        text,
                        Judging(
                            reason,
                            answer or "",
                            [(a["text"], a["feedback"]) for a in attempts],
                            reasoning,
                        ),
                    )
                    for _, text, reason, answer, attempts, reasoning in rows
                ],
            )

    def _read_rows(self, table: str, columns: list[str], at_once: int) -> Iterator[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.run_path / table) as file:
            for batch in file.iter_batches(columns=columns, batch_size=at_once):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
