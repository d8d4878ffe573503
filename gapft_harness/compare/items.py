"""Items with the texts before and after, read from the logs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.reading import Rows
from gapft_harness.report.explorer.explored import Entry
from gapft_harness.verdicts.sample_logs import LogRow, seekable


@dataclass(frozen=True, slots=True)
class Changed:
    """One item under one seed of a model.

    Attributes:
        model: its name.
        seed: number of the run, from 1.
        position: the item's, in the comparison's arrays.
        gained: whether its number rose.
        before: the row of the log before.
        after: the row after.
    """

    model: str
    seed: int
    position: int
    gained: bool
    before: LogRow
    after: LogRow


def changed(of: Comparison, most: int | None = None) -> Iterator[Changed]:
    """Yields gained and lost items: by model, by seed, in the order of the log before.

    Args:
        of: the comparison.
        most: of each model no more gained and no more lost ones than these.
    """
    with _reading() as record:
        for model, runs in of.after.items():
            left = {True: most, False: most}
            values = of.table.after[model]
            for seed, (rows, by_item) in enumerate(runs, start=1):
                differs = np.flatnonzero(values[seed - 1] != of.table.before)
                for position in differs[np.argsort(of.rows_before[differs])].tolist():
                    gained = bool(values[seed - 1, position] > of.table.before[position])
                    if left[gained] == 0:
                        continue
                    if (many := left[gained]) is not None:
                        left[gained] = many - 1
                    yield Changed(
                        *(model, seed, position, gained),
                        record(of.before, int(of.rows_before[position])),
                        record(rows, int(by_item[position])),
                    )


def entries(of: Comparison, positions: Sequence[int]) -> Iterator[Entry]:
    """Yields the texts of some items, by their places in the comparison's arrays."""
    with _reading() as record:
        for position in positions:
            before = record(of.before, int(of.rows_before[position]))
            after = (
                record(rows, int(by_item[position]))
                for runs in of.after.values()
                for rows, by_item in runs
            )
            yield Entry(
                prompt=before.prompt,
                gold=before.gold,
                responses=[before.response, *(row.response for row in after)],
                document=before.fields["doc"],
            )


@contextmanager
def _reading() -> Iterator[Callable[[Rows, int], LogRow]]:
    """Reads rows by their numbers; each log is opened once."""
    with ExitStack() as stack:
        readers: dict[Path, Callable[[int, int], LogRow]] = {}

        def record(rows: Rows, row: int) -> LogRow:
            log = rows.logs[rows.log[row]]
            if log.path not in readers:
                readers[log.path] = stack.enter_context(seekable(log))
            return readers[log.path](rows.lines[row], rows.offsets[row])

        yield record
