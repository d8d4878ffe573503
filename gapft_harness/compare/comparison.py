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
from gapft_harness.compare.places import Log, Run, models, single
from gapft_harness.compare.reading import Figure, Rows, figure_of, read
from gapft_harness.compare.source_samples import Samples, source_samples
from gapft_harness.core.errors import UserError, plain

#: More groups than these are no groups.
_MOST_GROUPS = 1_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and what was found.

    Attributes:
        choice: what the user chose.
        figure: the metric and the filter.
        higher_is_better: of the metric, by the user or lm_eval's results files; None: not known.
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

    def judged(self, *models: str) -> bool:
        """Whether documents are right or wrong, under these models or all.

        The metric is 0 or 1, and not known to be better when lower.
        """
        return self.higher_is_better is not False and self.table.binary(*models)

    def worse(self, margin: float) -> list[str]:
        """The models that are worse by more than a margin: the whole interval lies beyond it.

        Raises:
            UserError: it cannot be told: there is no interval, or the direction is not known.
        """
        if self.higher_is_better is None and not self.table.binary():
            raise UserError(
                f"--fail-if-worse: is {plain(self.figure.metric)} better when higher? lm_eval's "
                "results file is not beside the logs, or does not say; give --higher-is-better or "
                "--lower-is-better"
            )
        worse = []
        for name, of in self.found.models.items():
            if of.interval is None:
                raise UserError(
                    "--fail-if-worse: one document was compared, which says nothing of others: "
                    "there is no interval that could lie below; evaluate more documents"
                )
            best = -of.interval.low if self.higher_is_better is False else of.interval.high
            if best < -margin:
                worse.append(name)
        return worse


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
        _clusters(first, joined, choice),
        _groups(first, joined, choice),
    )
    higher = _higher_is_better([source, *(run for m in others for run in m.runs)], figure, choice)
    samples = None
    if choice.source_samples:
        if higher is False or not table.binary():
            raise UserError(
                "--source-samples: states need a metric of 0 or 1 that is better when higher, and "
                f"{plain(figure.metric)} is not; known: {', '.join(map(plain, first.metrics))}"
            )
        samples = source_samples(choice, joined.items, figure, source)
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


def _clusters(rows: Rows, joined: Joined, choice: Choice) -> NDArray[np.int64] | None:
    """Numbers of clusters in the order of their hashes: the order of rows plays no part."""
    if not rows.clusters:
        return None
    named = [rows.clusters[row] for row in joined.before.tolist()]
    numbers = {name: number for number, name in enumerate(sorted(set(named)))}
    if len(numbers) == 1:
        raise UserError(
            f"--cluster {choice.cluster}: all {len(named):,} documents are of one cluster, which "
            "says nothing of others; choose a field with more values"
        )
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


def _higher_is_better(runs: Sequence[Run], figure: Figure, choice: Choice) -> bool | None:
    told: dict[bool, Log] = {}
    for log in (log for run in runs for log in run.logs):
        of_task = log.facts.get("higher_is_better", {}).get(log.task)
        if isinstance(of_task, dict) and isinstance(of_task.get(figure.metric), bool):
            told.setdefault(of_task[figure.metric], log)
    metric = plain(figure.metric)
    if len(told) > 1:
        raise UserError(
            f"{metric} is better when higher in {told[True].path} and when lower in "
            f"{told[False].path}, by lm_eval's results files beside them; compare tasks of one "
            "kind: --task NAME"
        )
    chosen = choice.higher_is_better
    if chosen is not None and (not chosen) in told:
        raise UserError(
            f"--{'higher' if chosen else 'lower'}-is-better: by lm_eval's results file beside "
            f"{told[not chosen].path}, {metric} is better when {'lower' if chosen else 'higher'}"
        )
    return next(iter(told), chosen)
