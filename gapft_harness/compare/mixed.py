"""Choose the metrics of logs of a different kind from BEFORE's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.reading import ComparedMetric
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.verdicts.log_files import Evaluation, Log
from gapft_harness.verdicts.sample_logs import SampleLog, read_rows


def choose_run_metrics(
    run: Evaluation,
    figures: Mapping[str, ComparedMetric],
    source: Evaluation,
    choice: CompareChoice,
) -> dict[str, ComparedMetric]:
    """Choose a run's metric for each task: BEFORE's, or the log's first if its kind lacks that.

    Raises:
        UserError: a log is empty, or its first row has no metric.
    """
    metrics = {}
    for log in run.logs:
        metric = figures.get(log.task) or next(iter(figures.values()))
        is_same_kind = log.kind == source.logs[0].kind
        metrics[log.task] = metric if is_same_kind else _choose_nearest(log, metric, choice.filter)
    return metrics


def _choose_nearest(log: Log, metric: ComparedMetric, chosen: str | None) -> ComparedMetric:
    rows = (row for row in read_rows(log) if row.filter == chosen)
    row = (next(rows, None) if chosen is not None else None) or SampleLog(log).first
    metrics = row.metrics
    return ComparedMetric(metric.metric if metric.metric in metrics else metrics[0], row.filter)


def note_metrics(
    model: str,
    run: Evaluation,
    figures: Mapping[str, ComparedMetric],
    run_figures: Mapping[str, ComparedMetric],
) -> Iterator[Text]:
    """Yield a note if the metrics of a run after are not those before."""
    before, after = (
        ", ".join(sorted({*map(str, items.values())})) for items in (figures, run_figures)
    )
    if before != after:
        yield Text(f"{model}: {after} of its {run.logs[0].kind} logs is compared with {before}")
