"""Reads sample logs line by line; of each line a few numbers and hashes are kept."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.core.errors import UserError, did_you_mean, plain
from gapft_harness.verdicts.places import Evaluation, Log
from gapft_harness.verdicts.sample_logs import (
    UNGRADED,
    LogRow,
    SampleLog,
    canonical,
    digest,
    ungraded_error,
)
from gapft_harness.verdicts.scales import Scale, find_scale

_REMEDY = "gapft rejudge LOG --verifier NAME judges its responses"


@dataclass(frozen=True, slots=True)
class Figure:
    """The number that is compared: a metric under a filter.

    Attributes:
        metric: as the log names it.
        filter: lm_eval's filter.
        negative_log: whether the logarithm of a perplexity is compared; see ``verdicts/scales.py``.
    """

    metric: str
    filter: str
    negative_log: bool = False

    @property
    def name(self) -> str:
        """What is compared, for people and in results.json."""
        return f"log {self.metric}" if self.negative_log else self.metric

    def __str__(self) -> str:
        return self.name if self.filter == "none" else f"{self.name}, filter {self.filter}"


@dataclass(slots=True)
class Rows:
    """What is kept of a run's rows; row i is ``…[i]`` in each.

    Attributes:
        logs: the run's logs; ``log`` holds numbers of these.
        contents: hash of the document, or of the fields that it is joined on.
        values: the metric; NaN where a document has none.
        unscored: by task, how many rows have null or NaN in place of it.
        unmeasured: by task, how many rows the metric does not apply to.
        scales: by task, how the values were made of the log's numbers.
        clusters: hash of the cluster field, if there is one.
        groups: the text of the field to compare by, if there is one.
        prompts: hash of the prompt as lm_eval gives it, "" where it does not.
        targets: the same of the gold answer.
        doc_ids: lm_eval's number of the document.
        log: in which log.
        lines: at which line, from 1.
        offsets: at which byte the line begins.
        filters: by task, all filters that were met.
        metrics: by task, the metrics that the first row names.
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
    log: array[int] = field(default_factory=lambda: array("l"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    filters: dict[str, list[str]] = field(default_factory=dict)
    metrics: dict[str, list[str]] = field(default_factory=dict)

    def place(self, row: int) -> str:
        """File and line, for a message."""
        return self.logs[self.log[row]].name_entry(self.lines[row])

    def document(self, row: int) -> str:
        """lm_eval's number of a row's document, for a message."""
        return f"doc_id {plain(self.doc_ids[row])}"

    def task(self, row: int) -> str:
        """The task of a row."""
        return self.logs[self.log[row]].task


def read(
    run: Evaluation, figures: Mapping[str, Figure], choice: CompareChoice, side: int = 0
) -> Rows:
    """Read a run's logs, each by the figure of its task; ``side`` is 1 for a run after.

    Raises:
        UserError: a line is no row of lm_eval's, lacks what is asked, or has no number and
            ``choice.common`` is not set; or the rows do not make what the log reports.
    """
    rows = Rows(run.logs)
    known: dict[Any, Any] = {}  # texts and hashes that recur are held once
    for number, log in enumerate(run.logs):
        # a renamed file does not tell its task
        figure = figures.get(log.task) or next(iter(figures.values()))
        source = SampleLog(log, figure.filter)
        numbers = _Numbers(figure.metric)
        for row in source:
            if log.task not in rows.metrics:
                rows.metrics[log.task] = row.named
            rows.contents.append(row.content(choice.on, side))
            numbers.add(row)
            if choice.cluster is not None:
                cluster = digest(row.value_at(choice.cluster))
                rows.clusters.append(known.setdefault(cluster, cluster))
            if choice.by is not None:
                group = row.value_at(choice.by)
                shown = group if isinstance(group, str) else canonical(group)
                rows.groups.append(known.setdefault(shown, shown))
            rows.prompts.append(row.hash_of("prompt"))
            rows.targets.append(row.hash_of("target"))
            rows.doc_ids.append(str(row.doc_id))
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
class _Numbers:
    """The numbers of a log's rows by one metric, and what is there where a row has none.

    Attributes:
        metric: its name.
        values: NaN where a row has none.
        unscored: how many rows have null or NaN.
        known: the metrics that rows name.
        first: the first row without a score.
    """

    metric: str
    values: array[float] = field(default_factory=lambda: array("d"))
    unscored: int = 0
    known: dict[str, None] = field(default_factory=dict)
    first: LogRow | None = None

    def add(self, row: LogRow) -> None:
        """Take in a row.

        Raises:
            UserError: the metric is no number there.
        """
        self.known.update(dict.fromkeys(row.named))
        value = row.read_number(self.metric)
        if value is None and (self.metric in row.fields or not row.named):
            self.unscored += 1
            self.first = self.first or row
        self.values.append(math.nan if value is None else value)

    def check(self, log: Log, *, common: bool) -> None:
        """Check that the log has the metric, for every document unless ``common``.

        Raises:
            UserError: no row names it, or documents have no number.
        """
        total = len(self.values)
        measured = total - sum(map(math.isnan, self.values))
        if not measured and not self.unscored:
            raise UserError(
                f"{log.path}: no metric {self.metric!r}; {did_you_mean(self.metric, self.known)}"
            )
        if self.first is None or (common and measured):
            return
        if self.metric not in self.first.fields:
            _ = self.first.metrics  # raises: a row names no metrics at all
        remedy = "--common compares the documents that all logs score" if measured else _REMEDY
        raise self.first.number_error(
            self.metric,
            f"expected a number; {self.unscored:,} of {total:,} documents have none; {remedy}",
        )


def figures_of(run: Evaluation, choice: CompareChoice) -> dict[str, Figure]:
    """By task, the metric and the filter to compare: those chosen, or else its log's.

    Raises:
        UserError: a log is empty, names no metric, or nothing in it was graded.
    """
    found = {}
    for log in run.logs:
        first = SampleLog(log, choice.filter).first
        metric = choice.metric or first.metrics[0]
        if metric == UNGRADED:
            raise ungraded_error(log, _REMEDY)
        found[log.task] = Figure(metric, first.filter)
    return found
