"""Notes about automatic choices and about the logs."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.findings import Numbers
from gapft_harness.compare.joining import Joined
from gapft_harness.compare.reading import Figure, Rows
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.verdicts.places import LM_EVAL

#: A run's rows, and the indices of the compared ones.
Selected = tuple[Rows, NDArray[np.int64]]


def notes(
    choice: CompareChoice,
    figures: Mapping[str, Figure],
    directions: Mapping[str, bool | None],
    joined: Joined,
    before: Rows,
    after: Mapping[str, Sequence[Selected]],
    table: Numbers,
) -> Iterator[Text]:
    """Yield notes; those that may change the meaning of the figures are warnings."""
    yield from _same_logs(before, after)
    yield from _chosen(choice, figures, before)
    yield from _note_missing_numbers(figures, before, after)
    yield from _note_logarithms(figures, before)
    lower = _named(figures, [task for task, higher in directions.items() if higher is False])
    if lower:
        yield Text(f"{lower}: lower is better, so a negative difference is a gain")
    numbers = [name for name in table.after if not table.binary(name)]
    unknown = _named(figures, [task for task, higher in directions.items() if higher is None])
    everything = [before, *(rows for runs in after.values() for rows, _ in runs)]
    of_lm_eval = [log for rows in everything for log in rows.logs if log.kind == LM_EVAL]
    if unknown and not numbers:
        why = " (no direction in lm_eval's results file, or no such file)" * bool(of_lm_eval)
        yield Text(f"{unknown}: assuming that higher is better{why}; else add --lower-is-better")
    if numbers:
        tasks = np.array([before.task(row) for row in joined.before.tolist()])
        graded = [task for task in figures if not table.part(tasks == task).binary()]
        which = "" if len(numbers) == len(table.after) else f" of {', '.join(numbers)}"
        yield Text(
            f"{_named(figures, graded)} has values other than 0 and 1{which}: means are compared, "
            "and tested by sign flips"
        )
    if numbers or lower:
        yield Text("higher and lower: documents whose number rose or fell")
    if joined.left_out:
        yield Text(f"{joined.left_out:,} documents are left out: they are not in all logs")
    if joined.repeated:
        yield Text(
            f"{joined.repeated:,} documents share their content with another one; these are "
            "paired by content and doc_id"
        )
    yield from _asked_otherwise(joined, before, after)
    alone = [log.path for log in of_lm_eval if log.version is None]
    if alone:
        more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
        yield Text(
            "versions of the task are not compared: no results file of lm_eval found beside "
            f"{alone[0]}{more}"
        )


def _named(figures: Mapping[str, Figure], tasks: Sequence[str]) -> str:
    """Format the metrics of some tasks, with the tasks if others have a different metric."""
    metrics = ", ".join(dict.fromkeys(figures[task].name for task in tasks))
    several = len({of.metric for of in figures.values()}) > 1
    return f"{metrics} ({', '.join(tasks)})" if metrics and several else metrics


def _chosen(choice: CompareChoice, figures: Mapping[str, Figure], before: Rows) -> Iterator[Text]:
    """Yield notes on the metric or filter chosen among several, one for tasks that agree."""
    for option, given, known in (
        ("metric", choice.metric, before.metrics),
        ("filter", choice.filter, before.filters),
    ):
        if given is not None:
            continue
        told: dict[tuple[str, str], list[str]] = {}
        for task, figure in figures.items():
            chosen = getattr(figure, option)
            rest = ", ".join(name for name in known[task] if name != chosen)
            if rest:
                told.setdefault((chosen, rest), []).append(task)
        for (chosen, rest), tasks in told.items():
            of = "" if len(tasks) == len(figures) else f" of {_few(tasks)}"
            taken = f"using {option} {chosen}, the first in the log{of}"
            yield Text(f"{taken}; others: {rest} (--{option})")


def _note_missing_numbers(
    figures: Mapping[str, Figure], before: Rows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield counts of documents that are left out because they have no number."""
    runs = [("before", before), *((name, rows) for name, of in after.items() for rows, _ in of)]
    for kind, verb in (("unscored", "has null or NaN"), ("unmeasured", "does not apply")):
        told = []
        for name, rows in runs:
            count = sum(getattr(rows, kind).values())
            if count:
                told.append(f"{count:,} of {len(rows.values):,} ({name})")
        if told:
            metrics = _named(figures, [*figures])
            yield Text(
                f"documents left out because {metrics} {verb}: {', '.join(told)}",
                "warning" if kind == "unscored" else "body",
            )


def _note_logarithms(figures: Mapping[str, Figure], before: Rows) -> Iterator[Text]:
    """Yield notes on logarithms that are compared instead of perplexities."""
    values = np.frombuffer(before.values, dtype=np.float64)
    tasks = np.array([before.task(row) for row in range(len(values))])
    for task, figure in figures.items():
        if figure.negative_log:
            perplexity = np.exp(np.nanmean(values[tasks == task]))
            yield Text(
                f"{figure.metric}: rows contain log-likelihoods; their negatives are compared, "
                f"whose mean is the logarithm of the perplexity ({perplexity:.4g} before)"
            )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _same_logs(before: Rows, after: Mapping[str, Sequence[Selected]]) -> Iterator[Text]:
    """Yield warnings for models whose logs are those before, by path or by content."""
    for model, runs in after.items():
        for rows, _ in runs:
            logs = [(one.path, other.path) for one in before.logs for other in rows.logs]
            same = [pair for pair in logs if filecmp.cmp(*pair, shallow=False)]
            if len(same) == len(before.logs):
                mine, theirs = same[0]
                yield Text(
                    f"{model} is BEFORE compared with itself: {theirs} and {mine} are the same log"
                    if mine.resolve() == theirs.resolve()
                    else f"{model} has an identical log to the one before: {theirs} is a copy of "
                    f"{mine}",
                    "warning",
                )
                break


def _asked_otherwise(
    joined: Joined, before: Rows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield warnings about different prompts or gold answers for the same documents."""
    for field, name in (("prompts", "prompt"), ("targets", "gold answer")):
        mine = getattr(before, field)
        for model, runs in after.items():
            differ = set()
            for rows, by_item in runs:
                theirs = getattr(rows, field)
                for row, other in zip(joined.before.tolist(), by_item.tolist(), strict=True):
                    if mine[row] and theirs[other] and mine[row] != theirs[other]:
                        differ.add(row)
            if differ:
                count = f"{len(differ):,} of {len(joined.items):,} documents"
                yield Text(f"{model}: different {name} than before for {count}", "warning")
