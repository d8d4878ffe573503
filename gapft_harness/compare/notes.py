"""What was chosen for the user, and what to know about the logs, in sentences."""

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

#: A run's rows, and which of them are compared.
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
    """Yields a sentence each, as a warning where it may change the meaning of the figures."""
    yield from _same_logs(before, after)
    yield from _chosen(choice, figures, before)
    yield from _note_missing_numbers(figures, before, after)
    yield from _note_logarithms(figures, before)
    lower = _named(figures, [task for task, higher in directions.items() if higher is False])
    if lower:
        yield Text(f"{lower} is better when lower: a negative difference is a gain")
    numbers = [name for name in table.after if not table.binary(name)]
    unknown = _named(figures, [task for task, higher in directions.items() if higher is None])
    everything = [before, *(rows for runs in after.values() for rows, _ in runs)]
    of_lm_eval = [log for rows in everything for log in rows.logs if log.kind == LM_EVAL]
    if unknown and not numbers:
        why = ": lm_eval's results file is not beside the logs, or does not say" * bool(of_lm_eval)
        yield Text(
            f"{unknown} is taken to be better when higher{why}; --lower-is-better if it is not"
        )
    if numbers:
        tasks = np.array([before.task(row) for row in joined.before.tolist()])
        graded = [task for task in figures if not table.part(tasks == task).binary()]
        which = "" if len(numbers) == len(table.after) else f" of {', '.join(numbers)}"
        yield Text(
            f"{_named(figures, graded)} is not 0 or 1 for every document{which}: means are "
            "compared, and tested by sign flips"
        )
    if numbers or lower:
        yield Text("higher and lower count the documents whose number changed")
    if joined.left_out:
        yield Text(f"{joined.left_out:,} documents that not all logs hold are left out")
    if joined.repeated:
        yield Text(
            f"{joined.repeated:,} documents have a content that occurs more than once; these are "
            "paired by content and doc_id"
        )
    yield from _asked_otherwise(joined, before, after)
    alone = [log.path for log in of_lm_eval if log.version is None]
    if alone:
        more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
        yield Text(
            "versions of the task are not compared: lm_eval's results file is not beside "
            f"{alone[0]}{more}"
        )


def _named(figures: Mapping[str, Figure], tasks: Sequence[str]) -> str:
    """The metrics of some tasks; which tasks, where others have another."""
    metrics = ", ".join(dict.fromkeys(figures[task].name for task in tasks))
    several = len({of.metric for of in figures.values()}) > 1
    return f"{metrics} ({', '.join(tasks)})" if metrics and several else metrics


def _chosen(choice: CompareChoice, figures: Mapping[str, Figure], before: Rows) -> Iterator[Text]:
    """What was taken of several metrics or filters, for all tasks of which it is the same."""
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
            taken = f"{option} {chosen}, the first in the log{of}"
            yield Text(f"{taken}; --{option} chooses another: {rest}")


def _note_missing_numbers(
    figures: Mapping[str, Figure], before: Rows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Documents that are left out because they have no number, counted log by log."""
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
                f"documents for which {metrics} {verb}, left out: {', '.join(told)}",
                "warning" if kind == "unscored" else "body",
            )


def _note_logarithms(figures: Mapping[str, Figure], before: Rows) -> Iterator[Text]:
    """What is compared in place of a perplexity."""
    values = np.frombuffer(before.values, dtype=np.float64)
    tasks = np.array([before.task(row) for row in range(len(values))])
    for task, figure in figures.items():
        if figure.negative_log:
            perplexity = np.exp(np.nanmean(values[tasks == task]))
            yield Text(
                f"rows of {figure.metric} hold log-likelihoods: the negative ones are compared, "
                f"whose mean is the logarithm of the perplexity ({perplexity:.4g} before)"
            )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _same_logs(before: Rows, after: Mapping[str, Sequence[Selected]]) -> Iterator[Text]:
    """Models whose logs are those before, by name or by every byte."""
    for model, runs in after.items():
        for rows, _ in runs:
            logs = [(one.path, other.path) for one in before.logs for other in rows.logs]
            same = [pair for pair in logs if filecmp.cmp(*pair, shallow=False)]
            if len(same) == len(before.logs):
                mine, theirs = same[0]
                yield Text(
                    f"{model} is BEFORE compared with itself: {theirs} and {mine} are the same log"
                    if mine.resolve() == theirs.resolve()
                    else f"{model} has the same log as before, to the byte: {theirs} is a copy of "
                    f"{mine}",
                    "warning",
                )
                break


def _asked_otherwise(
    joined: Joined, before: Rows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Other prompts, or other gold answers, for the same documents."""
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
                yield Text(f"{model} had another {name} than before for {count}", "warning")
