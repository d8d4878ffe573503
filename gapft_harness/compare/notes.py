"""Notes about automatic choices and about the logs."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.findings import Numbers
from gapft_harness.compare.joining import JoinedRows
from gapft_harness.compare.reading import ComparedMetric, RunRows
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.verdicts.log_files import LM_EVAL

#: A run's rows, and the indices of the compared ones.
Selected = tuple[RunRows, NDArray[np.int64]]


def list_notes(
    choice: CompareChoice,
    figures: Mapping[str, ComparedMetric],
    directions: Mapping[str, bool | None],
    joined: JoinedRows,
    before: RunRows,
    after: Mapping[str, Sequence[Selected]],
    table: Numbers,
) -> Iterator[Text]:
    """Yield notes; those that may change the meaning of the figures are warnings."""
    yield from _note_same_logs(before, after)
    yield from _note_choices(choice, figures, before)
    yield from _note_missing_numbers(figures, before, after)
    yield from _note_logarithms(figures, before)
    lower = _format_metrics(
        figures, [task for task, higher in directions.items() if higher is False]
    )
    if lower:
        yield Text(f"{lower}: lower is better, so a negative difference is a gain")
    numbers = [name for name in table.after if not table.is_binary(name)]
    unknown = _format_metrics(
        figures, [task for task, higher in directions.items() if higher is None]
    )
    all_rows = [before, *(rows for runs in after.values() for rows, _ in runs)]
    lm_eval_logs = [log for rows in all_rows for log in rows.logs if log.kind == LM_EVAL]
    if unknown and not numbers:
        reason = " (no direction in lm_eval's results file, or no such file)" * bool(lm_eval_logs)
        yield Text(f"{unknown}: assuming that higher is better{reason}; else add --lower-is-better")
    if numbers:
        tasks = np.array([before.find_task(row) for row in joined.before.tolist()])
        graded = [task for task in figures if not table.select(tasks == task).is_binary()]
        which = "" if len(numbers) == len(table.after) else f" of {', '.join(numbers)}"
        yield Text(
            f"{_format_metrics(figures, graded)} has values other than 0 and 1{which}: means are "
            "compared, and tested by sign flips"
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
    yield from _note_changed_inputs(joined, before, after)
    unversioned = [log.path for log in lm_eval_logs if log.version is None]
    if unversioned:
        others = f" and {len(unversioned) - 1} more" if len(unversioned) > 1 else ""
        yield Text(
            "versions of the task are not compared: no results file of lm_eval found beside "
            f"{unversioned[0]}{others}"
        )


def _format_metrics(figures: Mapping[str, ComparedMetric], tasks: Sequence[str]) -> str:
    """Format the metrics of some tasks, with the tasks if others have a different metric."""
    metrics = ", ".join(dict.fromkeys(figures[task].name for task in tasks))
    has_metrics = len({figure.metric for figure in figures.values()}) > 1
    return f"{metrics} ({', '.join(tasks)})" if metrics and has_metrics else metrics


def _note_choices(
    choice: CompareChoice, figures: Mapping[str, ComparedMetric], before: RunRows
) -> Iterator[Text]:
    """Yield notes on the metric or filter chosen among several, one for tasks that agree."""
    for option, choice_value, names_by_task in (
        ("metric", choice.metric, before.metrics),
        ("filter", choice.filter, before.filters),
    ):
        if choice_value is not None:
            continue
        tasks_by_choice: dict[tuple[str, str], list[str]] = {}
        for task, figure in figures.items():
            chosen = getattr(figure, option)
            rest = ", ".join(name for name in names_by_task[task] if name != chosen)
            if rest:
                tasks_by_choice.setdefault((chosen, rest), []).append(task)
        for (chosen, rest), tasks in tasks_by_choice.items():
            task_text = "" if len(tasks) == len(figures) else f" of {_format_few(tasks)}"
            summary = f"using {option} {chosen}, the first in the log{task_text}"
            yield Text(f"{summary}; others: {rest} (--{option})")


def _note_missing_numbers(
    figures: Mapping[str, ComparedMetric], before: RunRows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield counts of documents that are left out because they have no number."""
    runs = [
        ("before", before),
        *((name, rows) for name, model_runs in after.items() for rows, _ in model_runs),
    ]
    for kind, verb in (("unscored", "has null or NaN"), ("unmeasured", "does not apply")):
        counts = []
        for name, rows in runs:
            count = sum(getattr(rows, kind).values())
            if count:
                counts.append(f"{count:,} of {len(rows.values):,} ({name})")
        if counts:
            metrics = _format_metrics(figures, [*figures])
            yield Text(
                f"documents left out because {metrics} {verb}: {', '.join(counts)}",
                "warning" if kind == "unscored" else "body",
            )


def _note_logarithms(figures: Mapping[str, ComparedMetric], before: RunRows) -> Iterator[Text]:
    """Yield notes on logarithms that are compared instead of perplexities."""
    values = np.frombuffer(before.values, dtype=np.float64)
    tasks = np.array([before.find_task(row) for row in range(len(values))])
    for task, figure in figures.items():
        if figure.negative_log:
            perplexity = np.exp(np.nanmean(values[tasks == task]))
            yield Text(
                f"{figure.metric}: rows contain log-likelihoods; their negatives are compared, "
                f"whose mean is the logarithm of the perplexity ({perplexity:.4g} before)"
            )


def _format_few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _note_same_logs(before: RunRows, after: Mapping[str, Sequence[Selected]]) -> Iterator[Text]:
    """Yield warnings for models whose logs are those before, by path or by content."""
    for model, runs in after.items():
        for rows, _ in runs:
            logs = [(log.path, other.path) for log in before.logs for other in rows.logs]
            same = [pair for pair in logs if filecmp.cmp(*pair, shallow=False)]
            if len(same) == len(before.logs):
                path_before, path_after = same[0]
                if path_before.resolve() == path_after.resolve():
                    warning = (
                        f"{model} is BEFORE compared with itself: {path_after} and {path_before} "
                        "are the same log"
                    )
                else:
                    warning = (
                        f"{model} has an identical log to the one before: {path_after} is a copy "
                        f"of {path_before}"
                    )
                yield Text(warning, "warning")
                break


def _note_changed_inputs(
    joined: JoinedRows, before: RunRows, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield warnings about different prompts or gold answers for the same documents."""
    for field, name in (("prompts", "prompt"), ("targets", "gold answer")):
        hashes_before = getattr(before, field)
        for model, runs in after.items():
            changed_rows = set()
            for rows, by_item in runs:
                hashes_after = getattr(rows, field)
                for row, other in zip(joined.before.tolist(), by_item.tolist(), strict=True):
                    if (
                        hashes_before[row]
                        and hashes_after[other]
                        and hashes_before[row] != hashes_after[other]
                    ):
                        changed_rows.add(row)
            if changed_rows:
                count = f"{len(changed_rows):,} of {len(joined.items):,} documents"
                yield Text(f"{model}: different {name} than before for {count}", "warning")
