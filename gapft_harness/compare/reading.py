"""Reads sample logs line by line; of each line a few numbers and hashes are kept."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.core.errors import plain
from gapft_harness.verdicts.places import Evaluation, Log
from gapft_harness.verdicts.sample_logs import SampleLog, canonical, digest


@dataclass(frozen=True, slots=True)
class Figure:
    """The number that is compared: a metric under a filter."""

    metric: str
    filter: str

    def __str__(self) -> str:
        return self.metric if self.filter == "none" else f"{self.metric}, filter {self.filter}"


@dataclass(slots=True)
class Rows:
    """What is kept of a run's rows; row i is ``…[i]`` in each.

    Attributes:
        logs: the run's logs; ``log`` holds numbers of these.
        contents: hash of the document, or of the fields that it is joined on.
        values: the metric.
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
        return f"{self.logs[self.log[row]].path}, line {self.lines[row]}"

    def document(self, row: int) -> str:
        """lm_eval's number of a row's document, for a message."""
        return f"doc_id {plain(self.doc_ids[row])}"

    def task(self, row: int) -> str:
        """The task of a row."""
        return self.logs[self.log[row]].task


def read(
    run: Evaluation, figures: Mapping[str, Figure], choice: CompareChoice, side: int = 0
) -> Rows:
    """Reads a run's logs, each by the figure of its task; ``side`` is 1 for a run after.

    Raises:
        UserError: a line is no row of lm_eval's, or lacks what is asked; file and line are named.
    """
    rows = Rows(run.logs)
    known: dict[Any, Any] = {}  # texts and hashes that recur are held once
    for number, log in enumerate(run.logs):
        # a renamed file does not tell its task
        figure = figures.get(log.task) or next(iter(figures.values()))
        source = SampleLog(log, figure.filter)
        for row in source:
            if log.task not in rows.metrics:
                rows.metrics[log.task] = row.metrics
            rows.contents.append(row.content(choice.on, side))
            rows.values.append(row.value(figure.metric))
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
        rows.filters[log.task] = list(source.filters)
    return rows


def figures_of(run: Evaluation, choice: CompareChoice) -> dict[str, Figure]:
    """By task, the metric and the filter to compare: those chosen, or else its log's.

    Raises:
        UserError: a log is empty, or its first row is none of lm_eval's.
    """
    found = {}
    for log in run.logs:
        first = SampleLog(log, choice.filter).first
        found[log.task] = Figure(choice.metric or first.metrics[0], first.filter)
    return found
