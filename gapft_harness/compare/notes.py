"""Notes about automatic choices and about the logs."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.findings import Numbers
from gapft_harness.compare.judging import JudgedLog
from gapft_harness.core.errors import quote_unprintable
from gapft_harness.outcomes.formats import LM_EVAL
from gapft_harness.outcomes.joining import Joined
from gapft_harness.outcomes.samples import VERDICT
from gapft_harness.outcomes.table import Metric, Outcomes
from gapft_harness.report.rendering.blocks import Text

#: The outcomes of an evaluation, and its compared documents.
Selected = tuple[Outcomes, NDArray[np.int64]]


def list_notes(
    choice: CompareChoice,
    figures: Mapping[str, Metric],
    directions: Mapping[str, bool | None],
    joined: Joined,
    before: Outcomes,
    after: Mapping[str, Sequence[Selected]],
    table: Numbers,
) -> Iterator[Text]:
    """Yield notes; those that may change the meaning of the figures are warnings."""
    yield from _note_same_logs(before, after)
    yield from _note_changed_scoring(joined, before, after)
    yield from _note_other_settings(before, after)
    yield from _note_other_filters(figures, joined, before, after)
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
    yield from _note_shards(all_rows)
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


def _format_metrics(figures: Mapping[str, Metric], tasks: Sequence[str]) -> str:
    """Format the metrics of some tasks, with the tasks if others have a different metric."""
    metrics = ", ".join(dict.fromkeys(figures[task].name for task in tasks))
    has_metrics = len({figure.metric for figure in figures.values()}) > 1
    return f"{metrics} ({', '.join(tasks)})" if metrics and has_metrics else metrics


def _note_choices(
    choice: CompareChoice, figures: Mapping[str, Metric], before: Outcomes
) -> Iterator[Text]:
    """Yield notes on the metric or filter chosen among several, one for tasks that agree."""
    for option, choice_value, names_by_task in (
        ("metric", choice.metric, before.metrics),
        ("filter", choice.filter, before.other_filters),
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
            which = "the log's own verdicts" if chosen == VERDICT else "the first in the log"
            summary = f"using {option} {chosen}, {which}{task_text}"
            yield Text(f"{summary}; others: {rest} (--{option})")


def _note_missing_numbers(
    figures: Mapping[str, Metric], before: Outcomes, after: Mapping[str, Sequence[Selected]]
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


def _note_logarithms(figures: Mapping[str, Metric], before: Outcomes) -> Iterator[Text]:
    """Yield notes on logarithms that are compared instead of perplexities."""
    values = before.values
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


def _note_same_logs(before: Outcomes, after: Mapping[str, Sequence[Selected]]) -> Iterator[Text]:
    """Yield warnings for models whose logs are those before, by path or by content."""
    for model, runs in after.items():
        for rows, _ in runs:
            if isinstance(rows.logs[0], JudgedLog) != isinstance(before.logs[0], JudgedLog):
                continue  # the log's own verdicts and a verifier's
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
    joined: Joined, before: Outcomes, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield warnings about different prompts or gold answers for the same documents."""
    for field, name in (("prompts", "prompt"), ("golds", "gold answer")):
        hashes_before = np.frombuffer(getattr(before, field), dtype=np.int64)[joined.before]
        for model, runs in after.items():
            changed = np.zeros(len(joined.items), dtype=bool)
            for outcomes, documents in runs:
                if outcomes.logs[0].kind != before.logs[0].kind:
                    continue  # each tool writes prompts and gold answers in its own way
                hashes = np.frombuffer(getattr(outcomes, field), dtype=np.int64)[documents]
                changed |= (hashes_before != hashes) & (hashes_before != 0) & (hashes != 0)
            if changed.any():
                count = f"{changed.sum():,} of {len(joined.items):,} documents"
                yield Text(f"{model}: different {name} than before for {count}", "warning")


def _note_changed_scoring(
    joined: Joined, before: Outcomes, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield warnings about equal responses with different scores: the scoring changed."""
    texts_before = before.find_only_texts()[joined.before]
    golds_before = np.frombuffer(before.golds, dtype=np.int64)[joined.before]
    values_before = before.values[joined.before]
    for model, runs in after.items():
        count = 0
        for outcomes, documents in runs:
            same = (texts_before != 0) & (texts_before == outcomes.find_only_texts()[documents])
            same &= golds_before == np.frombuffer(outcomes.golds, dtype=np.int64)[documents]
            count += int((same & (outcomes.values[documents] != values_before)).sum())
        if count:
            yield Text(
                f"{model}: {count:,} responses are the same text as before but have another score: "
                "the scoring changed, not the model",
                "warning",
            )


#: Arguments of a model that name it; they differ between models.
_MODEL_NAMES = ("pretrained", "peft", "delta", "tokenizer", "model", "path")


def _note_other_settings(
    before: Outcomes, after: Mapping[str, Sequence[Selected]]
) -> Iterator[Text]:
    """Yield warnings about evaluations whose version of lm_eval or model arguments differ."""
    settings_before = before.logs[0].settings
    for model, runs in after.items():
        differences: dict[str, None] = {}
        for outcomes, _ in runs:
            settings = outcomes.logs[0].settings
            if not settings_before or not settings:
                continue
            for name in sorted({*settings_before, *settings} - {*_MODEL_NAMES}):
                old, new = settings_before.get(name), settings.get(name)
                if old != new:
                    differences[f"{name} {_format_setting(old)} → {_format_setting(new)}"] = None
        if differences:
            yield Text(
                f"{model}: evaluated with other settings than before, so the change may not be the "
                f"model's: {', '.join(differences)}",
                "warning",
            )


def _format_setting(value: object) -> str:
    return "not set" if value is None else quote_unprintable(str(value))


def _note_other_filters(
    figures: Mapping[str, Metric],
    joined: Joined,
    before: Outcomes,
    after: Mapping[str, Sequence[Selected]],
) -> Iterator[Text]:
    """Yield warnings about filters under which the same metric changes in the other direction."""
    if joined.left_out:
        return  # the sums are those of all documents
    for task, figure in figures.items():
        for model, runs in after.items():
            changes: dict[str, tuple[float, float]] = {}
            for name, (count, total) in before.other_filters.get(task, {}).items():
                sums = [rows.other_filters.get(task, {}).get(name, (0, 0.0)) for rows, _ in runs]
                if count and all(own_count == count for own_count, _ in sums):
                    mean = sum(own_total for _, own_total in sums) / (count * len(sums))
                    changes[name] = total / count, mean
            if figure.filter not in changes:
                continue
            low, high = changes.pop(figure.filter)
            for name, (mean_before, mean) in changes.items():
                if (mean - mean_before) * (high - low) < 0:
                    yield Text(
                        f"{model}: {figure.metric} of {task or 'the log'} changes in the other "
                        f"direction under filter {name}: from {mean_before:.4g} to {mean:.4g}, but "
                        f"from {low:.4g} to {high:.4g} under {figure.filter}; the answers' format "
                        "may have changed, not their correctness",
                        "warning",
                    )


def _note_shards(runs: Sequence[Outcomes]) -> Iterator[Text]:
    """Yield notes on logs that were joined because they are parts of one evaluation."""
    for outcomes in runs:
        tasks = [log.task for log in outcomes.logs]
        for task in dict.fromkeys(tasks):
            if tasks.count(task) > 1:
                folder = next(log.path.parent for log in outcomes.logs if log.task == task)
                yield Text(
                    f"{folder}: {tasks.count(task)} logs of {task} with equal settings and "
                    "different documents are joined as parts of one evaluation"
                )
