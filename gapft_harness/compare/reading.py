"""Read sample logs line by line, and keep a few numbers and hashes of each line."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.core.errors import UserError, did_you_mean, quote_unprintable
from gapft_harness.verdicts.log_files import Evaluation, Log
from gapft_harness.verdicts.sample_logs import (
    UNGRADED,
    LogRow,
    SampleLog,
    encode_canonical,
    hash_value,
    ungraded_error,
)
from gapft_harness.verdicts.scales import Scale, find_scale

_REMEDY = "gapft rejudge LOG --verifier NAME judges its responses"


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """The compared number: a metric under a filter.

    Attributes:
        metric: the metric's name in the log.
        filter: lm_eval's filter.
        negative_log: whether the logarithm of a perplexity is compared; see ``verdicts/scales.py``.
    """

    metric: str
    filter: str
    negative_log: bool = False

    @property
    def name(self) -> str:
        """The name of the compared number, for people and in results.json."""
        return f"log {self.metric}" if self.negative_log else self.metric

    def __str__(self) -> str:
        return self.name if self.filter == "none" else f"{self.name}, filter {self.filter}"


@dataclass(slots=True)
class RunRows:
    """The columns that are kept of a run's rows; row i is element i of each.

    Attributes:
        logs: the run's logs; ``log`` has indices of these.
        contents: hash of the document, or of the fields that it is joined on.
        values: the metric; NaN if a document has none.
        unscored: by task, the number of rows with null or NaN as the metric.
        unmeasured: by task, the number of rows that the metric does not apply to.
        scales: by task, how the values were computed from the log's numbers.
        clusters: hash of the cluster field; empty without one.
        groups: text of the field to compare by; empty without one.
        prompts: lm_eval's hash of the prompt; "" without one.
        targets: the same for the gold answer.
        doc_ids: lm_eval's number of the document.
        endings: how the only response ended (``LogRow.ending``).
        log: index of the row's log.
        lines: line number, from 1.
        offsets: byte offset of the line.
        filters: by task, all filters in the log.
        metrics: by task, the metrics in the first row.
    """

    logs: tuple[Log, ...]
    contents: list[bytes] = field(default_factory=list)
    values: array[float] = field(default_factory=lambda: array("d"))
    unscored: dict[str, int] = field(default_factory=dict)
    unmeasured: dict[str, int] = field(default_factory=dict)
    scales: dict[str, Scale] = field(default_factory=dict)
    clusters: list[bytes] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    doc_ids: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    log: array[int] = field(default_factory=lambda: array("l"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    filters: dict[str, list[str]] = field(default_factory=dict)
    metrics: dict[str, list[str]] = field(default_factory=dict)

    def describe_place(self, row: int) -> str:
        """Return a row's file and line, for messages."""
        return self.logs[self.log[row]].name_entry(self.lines[row])

    def describe_document(self, row: int) -> str:
        """Return lm_eval's number of a row's document, for messages."""
        return f"doc_id {quote_unprintable(self.doc_ids[row])}"

    def find_task(self, row: int) -> str:
        """Return the task of a row."""
        return self.logs[self.log[row]].task


def read_run(
    run: Evaluation, figures: Mapping[str, ComparedMetric], choice: CompareChoice, side: int = 0
) -> RunRows:
    """Read a run's logs, each with the metric of its task.

    Args:
        run: the run.
        figures: by task, the metric.
        choice: the user's options.
        side: 0 for the run before, 1 for a run after.

    Raises:
        UserError: an invalid row, a missing field, a row without a number if ``choice.common`` is
            not set, or rows whose mean differs from the one that the log reports.
    """
    rows = RunRows(run.logs)
    shared_values: dict[Any, Any] = {}  # repeated texts and hashes are stored once
    for number, log in enumerate(run.logs):
        # the task of a renamed file is unknown
        figure = figures.get(log.task) or next(iter(figures.values()))
        source = SampleLog(log, figure.filter)
        numbers = _MetricValues(figure.metric)
        for row in source:
            if log.task not in rows.metrics:
                rows.metrics[log.task] = row.named_metrics
            rows.contents.append(row.hash_fields(choice.on, side))
            numbers.add(row)
            if choice.cluster is not None:
                cluster = hash_value(row.find_value(choice.cluster))
                rows.clusters.append(shared_values.setdefault(cluster, cluster))
            if choice.by is not None:
                group = row.find_value(choice.by)
                group_text = group if isinstance(group, str) else encode_canonical(group)
                rows.groups.append(shared_values.setdefault(group_text, group_text))
            rows.prompts.append(row.find_hash("prompt"))
            rows.targets.append(row.find_hash("target"))
            rows.doc_ids.append(str(row.doc_id))
            rows.endings.append(row.ending)
            rows.log.append(number)
            rows.lines.append(row.line)
            rows.offsets.append(row.offset)
        numbers.check(log, common=choice.common)
        values = np.frombuffer(numbers.values, dtype=np.float64)
        scale = find_scale(log, figure.metric, figure.filter, values)
        compared = scale.apply(values)
        rows.values.extend(compared.tolist())
        rows.scales[log.task] = scale
        rows.unscored[log.task] = numbers.unscored
        rows.unmeasured[log.task] = int(np.isnan(compared).sum()) - numbers.unscored
        rows.filters[log.task] = list(source.filters)
    return rows


@dataclass(slots=True)
class _MetricValues:
    """The values of one metric in a log's rows, and facts about rows without one.

    Attributes:
        metric: the metric's name.
        values: the values; NaN for a row without one.
        unscored: number of rows with null or NaN.
        names: the metrics named in rows.
        first_unscored: the first row without a score.
    """

    metric: str
    values: array[float] = field(default_factory=lambda: array("d"))
    unscored: int = 0
    names: dict[str, None] = field(default_factory=dict)
    first_unscored: LogRow | None = None

    def add(self, row: LogRow) -> None:
        """Add a row.

        Raises:
            UserError: the metric is not a number in this row.
        """
        self.names.update(dict.fromkeys(row.named_metrics))
        value = row.read_number(self.metric)
        if value is None and (self.metric in row.fields or not row.named_metrics):
            self.unscored += 1
            self.first_unscored = self.first_unscored or row
        self.values.append(math.nan if value is None else value)

    def check(self, log: Log, *, common: bool) -> None:
        """Check that the log has the metric, for every document unless ``common``.

        Raises:
            UserError: no row has the metric, or documents have no number.
        """
        total = len(self.values)
        measured = total - sum(map(math.isnan, self.values))
        if not measured and not self.unscored:
            raise UserError(
                f"{log.path}: unknown metric {self.metric!r}; "
                f"{did_you_mean(self.metric, self.names)}"
            )
        if self.first_unscored is None or (common and measured):
            return
        if self.metric not in self.first_unscored.fields:
            _ = self.first_unscored.metrics  # raises: the row has no metrics
        remedy = "--common compares only documents that all logs score" if measured else _REMEDY
        raise self.first_unscored.number_error(
            self.metric,
            f"expected a number; {self.unscored:,} of {total:,} documents have none; {remedy}",
        )


def choose_metrics(run: Evaluation, choice: CompareChoice) -> dict[str, ComparedMetric]:
    """Choose for each task the metric and the filter: the user's, or else the first in its log.

    Raises:
        UserError: a log is empty, has no metric, or nothing in it was graded.
    """
    metrics = {}
    for log in run.logs:
        first = SampleLog(log, choice.filter).first
        metric = choice.metric or first.metrics[0]
        if metric == UNGRADED:
            raise ungraded_error(log, _REMEDY)
        metrics[log.task] = ComparedMetric(metric, first.filter)
    return metrics
