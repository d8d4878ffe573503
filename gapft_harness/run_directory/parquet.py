"""Reading and writing tables: Parquet files, a few rows in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

#: A row that was read, by column name.
Row = Mapping[str, Any]

#: A row to write: a value for each column, in order.
Values = Sequence[Any]


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[Iterable[Values]]) -> None:
    """Write a table atomically, one batch of rows in memory at a time.

    Args:
        path: the table.
        schema: its columns.
        batches: batches of rows; each becomes a row group.
    """
    import pyarrow.parquet as pq

    def write_rows(beside: Path) -> None:
        with pq.ParquetWriter(beside, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_table(_build_table(schema, batch))

    replace_file(path, write_rows)


def _build_table(schema: pa.Schema, rows: Iterable[Values]) -> pa.Table:
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def read_rows(
    path: Path, columns: Sequence[str] | None = None, batch_size: int = 4096
) -> Iterator[dict[str, Any]]:
    """Yield a table's rows, ``batch_size`` of them in memory at a time.

    Args:
        path: the table.
        columns: the columns to read; None: all.
        batch_size: the number of rows.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size, columns=columns):
            yield from batch.to_pylist()


def read_ids(path: Path) -> Iterator[str]:
    """Yield the problem ids of a table's rows, once for adjacent rows of the same problem."""
    for problem_id, _ in groupby(row["problem_id"] for row in read_rows(path, ["problem_id"])):
        yield problem_id
