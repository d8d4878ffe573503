"""What a report shows and computes nothing from: it is large, and read while it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from gapft_harness.core.records import GREEDY
from gapft_harness.run_directory import layout

#: Rows in memory at a time: a document may hold megabytes of packed tests.
_DOCUMENTS, _RESPONSES = 64, 4096


@dataclass(frozen=True, slots=True)
class Unread:
    """An audit's records and the texts of its samples, in the order of the sealed tables.

    Attributes:
        run_path: the run directory; the caller has checked the tables' hashes.
        split: the audit's.
    """

    run_path: Path
    split: str = "audit"

    @property
    def place(self) -> Path:
        """The folder of the tables, for a message."""
        return self.run_path / self.split

    def documents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields problem ids and the benchmark's own records."""
        columns = ["problem_id", "document"]
        for name, document in self._rows(layout.problems(self.split), columns, _DOCUMENTS):
            yield name, json.loads(document)

    def samples(self) -> Iterator[tuple[str, list[str]]]:
        """Yields problem ids and their K samples."""
        columns = ["problem_id", "index", "text"]
        rows = self._rows(layout.responses(self.split), columns, _RESPONSES)
        for name, of in groupby(rows, key=itemgetter(0)):
            yield name, [text for _, index, text in of if index != GREEDY]

    def _rows(self, table: str, columns: list[str], at_once: int) -> Iterator[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.run_path / table) as file:
            for batch in file.iter_batches(columns=columns, batch_size=at_once):
                yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
