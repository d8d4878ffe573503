"""``selections/ARM.parquet``: a training set in the selector's order."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.files import replace_file
from gapft_harness.core.records import Budget, Example
from gapft_harness.run_directory.tables.parquet import FACTS, read_rows, table_of

if TYPE_CHECKING:
    import pyarrow as pa


@functools.cache
def schema() -> pa.Schema:
    """The columns: those of ``records.Example``."""
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    return pa.schema(
        [
            ("problem_id", pa.string()),
            ("state", pa.string()),
            ("response_index", pa.int32()),
            ("first_success", pa.int32()),
            ("prompt_ids", ids),
            ("response_ids", ids),
            ("ended", pa.bool_()),
            ("origin", pa.string()),
        ]
    )


def write_examples(path: Path, examples: Sequence[Example], budget: Budget) -> None:
    """Writes a training set, with its budget as the table's facts."""
    import pyarrow.parquet as pq

    table = table_of(schema(), map(attrgetter(*schema().names), examples))
    table = table.replace_schema_metadata({FACTS: json.dumps(asdict(budget))})
    replace_file(path, lambda beside: pq.write_table(table, beside, compression="zstd"))


def read_examples(path: Path) -> list[Example]:
    """Reads a sealed selection, in the selector's order."""
    return [
        Example(
            **row
            | {"prompt_ids": tuple(row["prompt_ids"]), "response_ids": tuple(row["response_ids"])}
        )
        for row in read_rows(path)
    ]
