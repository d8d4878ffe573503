"""Export every judged response, with the state and the solve rate of its problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.parquet import Values, read_rows, write_batches
from gapft_harness.run_directory.tables import read_judged, read_states

_TEXTS = (
    "problem_id", "prompt", "gold", "state", "text", "verdict", "reason", "answer", "finish_reason",
)  # fmt: skip
_KINDS = (layout.states_path, layout.problems_path, layout.responses_path)
#: Rows in memory at a time.
_BATCH_SIZE = 1024


def write_dataset(run: RunDirectory, out: Path) -> list[Path]:
    """Write a table ``SPLIT.parquet`` for every split that has states, with a row per response.

    Args:
        run: the run; its pool must have states.
        out: the folder to write.

    Returns:
        The paths of the files.

    Raises:
        UserError: the pool has no states yet, or a table was changed.
    """
    import pyarrow as pa

    columns = [(name, pa.string()) for name in _TEXTS]
    schema = pa.schema([*columns, ("index", pa.int32()), ("solve_rate", pa.float64())])
    splits = [split for split in SPLITS if run.has(layout.states_path(split))]
    tables = {
        out / f"{split}.parquet": [run.file(kind(split)) for kind in _KINDS]
        for split in splits or ["pool"]
    }
    for path, (states, problems, responses) in tables.items():
        write_batches(path, schema, _divide(_build_rows(states, problems, responses)))
    return list(tables)


def _divide(rows: Iterator[Values]) -> Iterator[list[Values]]:
    while batch := list(islice(rows, _BATCH_SIZE)):
        yield batch


def _build_rows(states: Path, problems: Path, responses: Path) -> Iterator[Values]:
    state_by_id = {row.problem_id: row for row in read_states(states)}
    rows = zip(read_rows(problems), read_judged(responses), strict=True)
    for problem, (problem_id, judged) in rows:
        state = state_by_id[problem_id]
        for item in judged:
            response = item.response
            verdict = item.verdict
            yield (
                problem_id, problem["prompt"], problem["gold"], state.state, response.text,
                verdict.status, verdict.reason, item.answer, response.finish_reason,
                response.index, state.passing_samples / state.samples,
            )  # fmt: skip
