"""``SPLIT/problems.parquet``: one row a problem, ordered by id."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.records import Problem
from gapft_harness.run_directory.tables.parquet import Values, read_rows, write_batches

if TYPE_CHECKING:
    import pyarrow as pa

#: Problems in memory at a time when they are read: one gold may be megabytes of packed tests.
_READ = 64

#: Problems written at a time.
_WRITE = 1000


@functools.cache
def schema() -> pa.Schema:
    """The columns.

    ``gold`` and ``document`` hold JSON; ``prompt_ids`` are those that the generator saw.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("problem_id", pa.string()),
            ("prompt", pa.string()),
            ("gold", pa.string()),
            ("document", pa.string()),
            ("prompt_ids", pa.list_(pa.int32())),
        ]
    )


def row_of(problem: Problem, prompt_ids: Sequence[int]) -> Values:
    """A problem and the prompt ids that the generator saw, as a row."""
    gold, document = json.dumps(problem.gold), json.dumps(dict(problem.document))
    return problem.id, problem.prompt, gold, document, prompt_ids


def write_problems(
    path: Path,
    problems: Sequence[Problem],
    prompt_ids: Callable[[Sequence[str]], Iterator[tuple[int, ...]]],
) -> None:
    """Writes the table.

    Args:
        path: the file.
        problems: of the split, in any order.
        prompt_ids: gives those of some problems' prompts, by their ids.
    """
    ordered = sorted(problems, key=lambda problem: problem.id)

    def batches() -> Iterator[Iterator[Values]]:
        for start in range(0, len(ordered), _WRITE):
            members = ordered[start : start + _WRITE]
            yield map(row_of, members, prompt_ids([problem.id for problem in members]))

    write_batches(path, schema(), batches())


def read_problems(path: Path) -> Iterator[tuple[Problem, tuple[int, ...]]]:
    """Yields problems and the prompt ids the generator saw, ordered by problem id."""
    for row in read_rows(path, _READ):
        problem = Problem(
            row["problem_id"], row["prompt"], json.loads(row["gold"]), json.loads(row["document"])
        )
        yield problem, tuple(row["prompt_ids"])


def read_prompts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the ids and prompts of a split's problems, without golds and records."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["problem_id", "prompt"]):
            yield from zip(*(batch.column(n).to_pylist() for n in (0, 1)), strict=True)
