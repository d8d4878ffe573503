"""Reads sample logs line by line; of each line a few numbers and hashes are kept."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gapft_harness.compare.choice import Choice
from gapft_harness.compare.places import Log, Run
from gapft_harness.core.errors import UserError, did_you_mean, plain
from gapft_harness.core.json_values import as_object, parse, parse_object
from gapft_harness.core.records import STATUSES
from gapft_harness.core.text import UNREADABLE, decoded, opened, unreadable

#: Bytes of a hash that are kept: a chance of 1e-19 that two of ten billion are the same.
_KEPT = 16
#: Larger numbers may have no finite sum.
_LARGEST = 1e200

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


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
        metrics: by task, the metrics that its first row names.
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


def read(run: Run, figures: Mapping[str, Figure], choice: Choice) -> Rows:
    """Reads a run's logs, each by the figure of its task.

    Raises:
        UserError: a line is no row of lm_eval's, or lacks what is asked; file and line are named.
    """
    rows = Rows(run.logs)
    known: dict[Any, Any] = {}  # texts and hashes that recur are held once
    for number, log in enumerate(run.logs):
        before = len(rows.values)
        # a renamed file does not tell its task
        figure = figures.get(log.task) or next(iter(figures.values()))
        filters: dict[str, None] = {}
        for line, offset, record, place in records(log.path):
            if log.task not in rows.metrics:
                rows.metrics[log.task] = metrics_of(record, place)
            of = filter_of(record)
            filters[of] = None
            if of != figure.filter:
                continue
            document = document_of(record, place)
            rows.contents.append(content(document, choice.on, place))
            rows.values.append(value_of(record, figure.metric, place))
            if choice.cluster is not None:
                digest = _digest(value_at(document, choice.cluster, place))
                rows.clusters.append(known.setdefault(digest, digest))
            if choice.by is not None:
                shown = _shown(value_at(document, choice.by, place))
                rows.groups.append(known.setdefault(shown, shown))
            rows.prompts.append(str(record.get("prompt_hash", ""))[:_KEPT])
            rows.targets.append(str(record.get("target_hash", ""))[:_KEPT])
            rows.doc_ids.append(str(record.get("doc_id")))
            rows.log.append(number)
            rows.lines.append(line)
            rows.offsets.append(offset)
        if len(rows.values) == before:
            raise UserError(
                f"{log.path}: holds no row under filter {figure.filter!r}; "
                f"{did_you_mean(figure.filter, filters)}"
            )
        rows.filters[log.task] = list(filters)
    return rows


def figures_of(run: Run, choice: Choice) -> dict[str, Figure]:
    """By task, the metric and the filter to compare: those chosen, or else its first row's first.

    Raises:
        UserError: a log is empty, or its first row is none of lm_eval's.
    """
    return {log.task: _figure_of(log, choice) for log in run.logs}


def _figure_of(log: Log, choice: Choice) -> Figure:
    for _, _, record, place in records(log.path):
        metric = choice.metric or metrics_of(record, place)[0]
        return Figure(metric, choice.filter or filter_of(record))
    raise UserError(f"{log.path}: is empty; expected a JSON object a line")


def records(path: Path) -> Iterator[tuple[int, int, dict[str, Any], str]]:
    """Yields (line from 1, the byte where it begins, row, file and line) of a log.

    Raises:
        UserError: the file cannot be read, or a line is no JSON object.
    """
    starts = [0]

    def counted(file: Iterable[bytes]) -> Iterator[bytes]:
        for line in file:
            starts[0] += len(line)
            yield line

    try:
        with opened(path) as file:
            start = 0
            for number, text in decoded(counted(file), str(path)):
                if text.strip():
                    place = f"{path}, line {number}"
                    yield number, start, parse_object(text, place), place
                start = starts[0]
    except UNREADABLE as error:
        raise UserError(unreadable(path, error)) from error


def record_at(file: IO[bytes], offset: int, place: str) -> dict[str, Any]:
    """The row that begins at a byte of an open log.

    Raises:
        UserError: there is none any more.
    """
    file.seek(offset)
    return as_object(parse(file.readline().decode("utf-8-sig", "replace"), place), place)


def metrics_of(record: dict[str, Any], place: str) -> list[str]:
    """The metrics that a row names, at least one; those alone that are numbers, if any is.

    Raises:
        UserError: it names none.
    """
    names = record.get("metrics")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise UserError(
            f"{place}: names no metrics; expected a log of lm_eval --log_samples, with doc, filter "
            "and metrics in each row"
        )
    return [name for name in names if isinstance(record.get(name), bool | int | float)] or names


def filter_of(record: dict[str, Any]) -> str:
    """The filter of a row."""
    return str(record.get("filter", "none"))


def document_of(record: dict[str, Any], place: str) -> dict[str, Any]:
    """The document of a row.

    Raises:
        UserError: it has none.
    """
    if "doc" not in record:
        raise UserError(f"{place}: has no doc, by which rows are joined")
    return as_object(record["doc"], f"{place}: doc")


def texts_of(record: dict[str, Any], place: str) -> list[str]:
    """A row's responses.

    Raises:
        UserError: it has none; the log of a multiple-choice task scores options by likelihood.
    """
    responses = record.get("resps")
    if not isinstance(responses, list) or not responses:
        raise UserError(
            f"{place}: has no resps, the responses that the model gave; expected a log of lm_eval "
            "--log_samples"
        )
    texts = responses[0] if len(responses) == 1 else None
    if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
        return texts
    raise UserError(
        f"{place}: its resps are no texts of one request, so there is no response to judge: "
        "a task of multiple choice or perplexity scores likelihoods; expected a generation task"
    )


def said(record: dict[str, Any], count: int) -> list[bool] | None:
    """Of each response, whether the logged verdicts say that it is right; None: there are none."""
    verdicts = record.get("verdicts")
    if not isinstance(verdicts, list) or len(verdicts) != count:
        return None
    told = [of.get("status") if isinstance(of, dict) else None for of in verdicts]
    return [status == "pass" for status in told] if all(s in STATUSES for s in told) else None


def value_of(record: dict[str, Any], metric: str, place: str) -> float:
    """A row's metric as a number.

    Raises:
        UserError: it has no such metric, or that is no number, or none that can be summed.
    """
    if metric not in record:
        known = metrics_of(record, place)
        raise UserError(f"{place}: no metric {metric!r}; {did_you_mean(metric, known)}")
    value = record[metric]
    if not isinstance(value, bool | int | float) or not abs(value) <= _LARGEST:
        shown = json.dumps(value)[:60]
        raise UserError(
            f"{place}: metric {metric!r} is {shown}, expected a number, up to {_LARGEST:g}, for "
            "each document (metrics of a whole corpus cannot be compared item by item)"
        )
    return float(value)


def content(document: dict[str, Any], on: Sequence[str], place: str) -> bytes:
    """What makes two documents the same: a hash of all fields, or of some.

    Raises:
        UserError: a field is missing.
    """
    return _digest({name: value_at(document, name, place) for name in on} if on else document)


def value_at(document: dict[str, Any], name: str, place: str) -> Any:
    """A field of a document; with dots, one inside another.

    Raises:
        UserError: it is missing or null.
    """
    found: Any = document.get(name)
    if found is None and "." in name:
        found = document
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        raise UserError(
            f"{place}: doc has no field {name!r}, or it is null; {did_you_mean(name, document)}"
        )
    return found


def _digest(value: Any) -> bytes:
    return hashlib.sha256(_canonical(value).encode()).digest()[:_KEPT]


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else _canonical(value)
