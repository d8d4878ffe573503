"""``SPLIT/states.parquet``: the state of every problem, ordered by id."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.records import State
from gapft_harness.run_directory.tables.parquet import read_rows, write_batches

if TYPE_CHECKING:
    import pyarrow as pa

#: Problems written at a time.
_WRITE = 10_000


@dataclass(frozen=True, slots=True)
class ProblemState:
    """A problem's state, by the samples that it rests on.

    Attributes:
        problem_id: the problem.
        state: G, S or U.
        samples: how many were drawn: K, or fewer of a solved problem where search stopped early.
        passing_samples: how many of them passed.
        first_success: number of the first sample that passed, or None.
        kept_index: the evidence's response; ``GREEDY``, a sample number, or None for U.
    """

    problem_id: str
    state: State
    samples: int
    passing_samples: int
    first_success: int | None
    kept_index: int | None


_NAMES = tuple(field.name for field in fields(ProblemState))


@functools.cache
def schema() -> pa.Schema:
    """The columns: those of ``ProblemState``."""
    import pyarrow as pa

    return pa.schema(
        [
            ("problem_id", pa.string()),
            ("state", pa.string()),
            ("samples", pa.int32()),
            ("passing_samples", pa.int32()),
            ("first_success", pa.int32()),
            ("kept_index", pa.int32()),
        ]
    )


def write_states(
    path: Path, states: Iterable[ProblemState], facts: Callable[[], Mapping[str, Any]]
) -> None:
    """Writes the table; ``facts`` are asked for once all states were taken."""
    rows = map(attrgetter(*_NAMES), states)
    batches = iter(lambda: list(islice(rows, _WRITE)), [])
    write_batches(path, schema(), batches, facts)


def read_states(path: Path) -> Iterator[ProblemState]:
    """Yields a split's states, ordered by problem id."""
    for row in read_rows(path):
        yield ProblemState(**{name: row[name] for name in _NAMES})
