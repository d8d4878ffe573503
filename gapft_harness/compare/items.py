"""Items with their texts before and after, read again from the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.reading import Rows
from gapft_harness.report.explorer.explored import (
    EQUAL,
    HIGHER,
    LOWER,
    Entry,
    Explored,
    Model,
    outcome,
)
from gapft_harness.report.rendering.wording import number
from gapft_harness.verdicts.sample_logs import LogRow, seekable

#: Maximum number of documents in explorer.html.
EXPLORED = 20_000


@dataclass(frozen=True, slots=True)
class Changed:
    """A changed item under one seed of a model.

    Attributes:
        model: the model's name.
        seed: number of the run, from 1.
        position: the item's index in the comparison's arrays.
        is_gained: whether its number rose.
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
    """Yield gained and lost items: by model, by seed, in the order of the log before.

    Args:
        comparison: the comparison.
        limit: maximum number of gained, and of lost, items of each model.
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
    """Yield the texts of items, given their indices in the comparison's arrays."""
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


def item_rows(of: Comparison, rose: str, fell: str) -> Iterator[tuple[object, ...]]:
    """Yield a row for each document and seed whose number changed, with complete texts."""
    states, groups = of.found.states, of.table.groups
    yield (
        "model", "seed", "seed_name", "change", "task", "doc_id", "document", "group", "state",
        "value_before", "value_after", "prompt", "gold", "before", "after",
    )  # fmt: skip
    for one in changed(of):
        task, digest, _ = of.items[one.position]
        yield (
            *(one.model, one.seed, of.seeds[one.model][one.seed - 1]),
            *(rose if one.gained else fell, task),
            *(one.before.doc_id, digest.hex()),
            None if groups is None else groups[one.position],
            None if states is None else states[one.position],
            of.table.before[one.position],
            of.table.after[one.model][one.seed - 1, one.position],
            *(one.before.prompt, one.before.gold, one.before.response, one.after.response),
        )


def explored(of: Comparison, most: int = EXPLORED) -> Explored:
    """Build the content of explorer.html."""
    positions = explored_positions(of, most)
    judged = of.judged()

    def verdicts(values: Any) -> list[str]:
        if judged:
            return ["right" if value else "wrong" for value in values]
        return [number(value) for value in values]

    def outcomes(values: Any) -> str:
        if judged:
            return "".join(map(outcome, before == 1, values == 1))
        rose = (values > before).astype(int) - (values < before)
        return "".join({1: HIGHER, 0: EQUAL, -1: LOWER}[change] for change in rose.tolist())

    before, samples, states = of.table.before[positions], of.samples, of.found.states
    tasks = [of.items[position][0] for position in positions]
    fields = {"task": tasks} if len(set(tasks)) > 1 else {}
    if of.choice.by is not None and of.table.groups is not None:
        fields[of.choice.by] = of.table.groups[positions].tolist()
    left_out = ""
    if len(positions) < len(of.items):
        left_out = (
            f" This page has {len(positions):,} of {len(of.items):,} documents: changed ones "
            f"first, then others, chosen by a hash."
        )
    return Explored(
        title=f"{', '.join(dict.fromkeys(filter(None, tasks))) or 'Comparison'}: before and after",
        remark=f"Before: {of.before_name}.{left_out}",
        noun="document",
        before="before",
        ids=names_of(of, positions),
        verdicts=verdicts(before),
        models=[
            Model(name, name, seed, verdicts(values), outcomes(values))
            for name, runs in of.table.after.items()
            for seed, values in zip(of.seeds[name], runs[:, positions], strict=True)
        ],
        states="" if states is None else "".join(states[positions].tolist()),
        k=0 if samples is None else samples.k,
        passing=() if samples is None else samples.passing[positions].tolist(),
        fields=fields,
        entries=lambda: entries(of, positions),
    )


def explored_positions(of: Comparison, most: int = EXPLORED) -> list[int]:
    """Choose changed documents first, then others up to the limit; return them in log order."""
    unchanged = np.ones(len(of.items), dtype=bool)
    for after in of.table.after.values():
        unchanged &= (after == of.table.before).all(axis=0)
    # items are sorted by hash, so this choice is random but reproducible
    shown = np.argsort(unchanged, kind="stable")[:most]
    positions: list[int] = shown[np.argsort(of.rows_before[shown])].tolist()
    return positions


def names_of(of: Comparison, positions: list[int]) -> list[str]:
    """Return distinct names of documents: ``doc_id``, with task or hash if needed."""
    rows = of.rows_before[positions].tolist()
    named = [
        (of.items[p][0], of.before.doc_ids[row]) for p, row in zip(positions, rows, strict=True)
    ]
    several = len({task for task, _ in named}) > 1
    names = [" ".join(name if several else name[1:]) for name in named]
    if len(set(names)) == len(names):
        return names
    return [f"{n} {of.items[p][1].hex()}" for n, p in zip(names, positions, strict=True)]


@contextmanager
def _reading() -> Iterator[Callable[[Rows, int], LogRow]]:
    """Provide a function that reads rows by their numbers, and opens each log once."""
    with ExitStack() as stack:
        readers: dict[Path, Callable[[int, int], LogRow]] = {}

        def record(rows: Rows, row: int) -> LogRow:
            log = rows.logs[rows.log[row]]
            if log.path not in readers:
                readers[log.path] = stack.enter_context(seekable(log))
            return readers[log.path](rows.lines[row], rows.offsets[row])

        yield record
