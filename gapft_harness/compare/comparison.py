"""One comparison from start to end: find the logs, read them, join them, compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import Choice
from gapft_harness.compare.findings import Found, Table, find
from gapft_harness.compare.joining import Item, Joined, join, refuse_other_tasks
from gapft_harness.compare.notes import notes
from gapft_harness.compare.places import Run, models, single
from gapft_harness.compare.reading import Figure, Rows, figure_of, read
from gapft_harness.compare.source_samples import Samples, source_samples
from gapft_harness.core.errors import UserError

#: More groups than these are no groups.
_MOST_GROUPS = 1_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and what was found.

    Attributes:
        choice: what the user chose.
        figure: the metric and the filter.
        higher_is_better: of the metric, by lm_eval's results files; None where they do not tell.
        before_name: what the user named it.
        before: rows of the run before.
        rows_before: shape (P,), which of them are compared.
        after: by model, for each seed its rows and which of them are compared.
        items: P, what is compared.
        table: the numbers.
        found: what they say.
        samples: the source's samples, if they were given.
        notes: what was chosen for the user, and what to know.
    """

    choice: Choice
    figure: Figure
    higher_is_better: bool | None
    before_name: str
    before: Rows
    rows_before: NDArray[np.int64]
    after: dict[str, list[tuple[Rows, NDArray[np.int64]]]]
    items: tuple[Item, ...]
    table: Table
    found: Found
    samples: Samples | None
    notes: tuple[str, ...]

    def worse(self, margin: float) -> list[str]:
        """The models that are worse by more than a margin: the whole interval lies beyond it."""
        sign = -1 if self.higher_is_better is False else 1
        return [
            name
            for name, of in self.found.models.items()
            if (of.interval.high if sign > 0 else -of.interval.low) < -margin
        ]


def compare(before: str, after: Sequence[str], choice: Choice) -> Comparison:
    """Compares sample logs of one model before with those of one or more after.

    Raises:
        UserError: what was named is not there, is damaged, or cannot be compared.
    """
    source = single(before, choice.tasks, "BEFORE")
    others = models(after, choice.tasks, seeds=choice.seeds)
    for model in others:
        for run in model.runs:
            refuse_other_tasks(source, run)
    figure = figure_of(source, choice)
    first = read(source, figure, choice)
    runs = [(model, read(run, figure, choice)) for model in others for run in model.runs]
    joined = join(first, [rows for _, rows in runs], common=choice.common)
    by_model: dict[str, list[tuple[Rows, NDArray[np.int64]]]] = {m.name: [] for m in others}
    for (model, rows), by_item in zip(runs, joined.after, strict=True):
        by_model[model.name].append((rows, by_item))
    table = Table(
        _values(first, joined.before),
        {name: np.stack([_values(*run) for run in of]) for name, of in by_model.items()},
        _clusters(first, joined),
        _groups(first, joined, choice),
    )
    samples = None
    if choice.source_samples:
        if not table.binary:
            raise UserError(
                f"--source-samples: states need a metric of 0 or 1, and {figure.metric} is not; "
                f"known: {', '.join(first.metrics)}"
            )
        samples = source_samples(choice.source_samples, joined.items, figure, choice)
    higher = _higher_is_better(source, figure)
    return Comparison(
        choice=choice,
        figure=figure,
        higher_is_better=higher,
        before_name=before,
        before=first,
        rows_before=joined.before,
        after=by_model,
        items=joined.items,
        table=table,
        found=find(table, samples),
        samples=samples,
        notes=tuple(notes(choice, figure, joined, first, by_model, table, higher)),
    )


def _values(rows: Rows, by_item: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.frombuffer(rows.values, dtype=np.float64)[by_item]


def _clusters(rows: Rows, joined: Joined) -> NDArray[np.int64] | None:
    """Numbers of clusters in the order of their hashes: the order of rows plays no part."""
    if not rows.clusters:
        return None
    named = [rows.clusters[row] for row in joined.before.tolist()]
    numbers = {name: number for number, name in enumerate(sorted(set(named)))}
    return np.array([numbers[name] for name in named], dtype=np.int64)


def _groups(rows: Rows, joined: Joined, choice: Choice) -> NDArray[np.str_] | None:
    """By the chosen field; without one, by task where there are several."""
    order = joined.before.tolist()
    if rows.groups:
        groups = [rows.groups[row] for row in order]
    elif len(rows.logs) > 1:
        groups = [rows.task(row) for row in order]
    else:
        return None
    if len(set(groups)) > _MOST_GROUPS:
        raise UserError(
            f"--by {choice.by}: {len(set(groups)):,} groups of {len(groups):,} documents; choose a "
            "field with fewer values"
        )
    return np.array(groups)


def _higher_is_better(run: Run, figure: Figure) -> bool | None:
    told = set()
    for log in run.logs:
        of_task = log.facts.get("higher_is_better", {}).get(log.task)
        if isinstance(of_task, dict) and isinstance(of_task.get(figure.metric), bool):
            told.add(of_task[figure.metric])
    if len(told) > 1:
        raise UserError(
            f"{run}: {figure.metric} is better when higher in one task and when lower in another; "
            "compare one of them: --task NAME"
        )
    return told.pop() if told else None
