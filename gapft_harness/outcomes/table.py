"""The table of outcomes: one number per document of a log, and what is needed to join and judge.

- **Metric.** A score has the name of a metric and a filter. The user chooses both; the defaults are
  the filter of the log's first row and the first metric of this row.
- **No number.** A score that is null or NaN, or a row without scores, leaves its document without a
  value. A document without this score is not measured by the metric.
- **Several responses** to a document give it the mean of their scores.
- **What passed** is decided by ``choose_verdict_metric`` and ``count_passing``: a chosen metric;
  else the log's verdicts, if its first row has them; else, for several responses, ``pass@1``; else
  the metric. A response passes at 1 and fails at 0. Only ``pass@1`` may be another number, a rate
  that gives how many responses passed and not which.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.errors import UserError, did_you_mean, quote_unprintable
from gapft_harness.core.records import GREEDY
from gapft_harness.outcomes.logs import Evaluation, Log, repeated_task_error
from gapft_harness.outcomes.reported import Scale, find_scale
from gapft_harness.outcomes.samples import (
    NO_FILTER,
    PASS_AT_1,
    VERDICT,
    Sample,
    encode_canonical,
    find_field,
    hash_value,
    list_filters,
    list_metrics,
    name_score,
)

#: The metric of ``lm_eval --predict_only``, which grades nothing.
UNGRADED = "bypass"
_REMEDY = "--verifier NAME judges the responses"
#: Texts that loggers write for a missing number.
_MISSING_NUMBER_TEXTS = frozenset(("", "nan", "null", "none", "n/a"))
#: Largest accepted number, so that sums are finite.
_MAX_NUMBER = 1e200
#: Largest difference between K times a logged pass@1 and an integer.
_COUNT_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Metric:
    """A score by its parts.

    Attributes:
        metric: the metric's name in the log.
        filter: lm_eval's filter.
        negative_log: whether the logarithm of a perplexity is meant; see ``reported.py``.
    """

    metric: str
    filter: str
    negative_log: bool = False

    @property
    def key(self) -> str:
        """The score's name in a sample."""
        return name_score(self.metric, self.filter)

    @property
    def name(self) -> str:
        """The name of the number, for people and in results.json."""
        return f"log {self.metric}" if self.negative_log else self.metric

    def __str__(self) -> str:
        return self.name if self.filter == NO_FILTER else f"{self.name}, filter {self.filter}"


class UnknownFilter(UserError):
    """A log has no row under a filter.

    Attributes:
        filters: the log's filters.
    """

    filters: tuple[str, ...] = ()


@dataclass(slots=True)
class Outcomes:
    """The outcomes of one evaluation; document i is element i of each column of documents.

    Attributes:
        logs: the logs; ``log`` has indices of these.
        contents: hash of the document, or of the fields that it is joined on.
        numbers: the log's number of the document.
        log: index of the document's log.
        lines: line of its first response.
        drawn: which responses it has: a bit for each index.
        clusters: hash of the cluster field; empty without one.
        groups: text of the field to compare by; empty without one.
        prompts: hash of the prompt; 0 without one. Hashes are those of this process.
        golds: hash of the gold answer; 0 without one.
        endings: how the only response ended; ``unknown`` for several.
        owners: for each score, its document.
        scores: the scores of single responses; NaN for a missing number.
        texts: for each score, the hash of the response; 0 without a text.
        values: shape (P,), the documents' numbers; NaN for a document without one.
        unscored: by task, the number of documents with null or NaN as the metric.
        unmeasured: by task, the number of documents that the metric does not apply to.
        scales: by task, how the values were computed from the log's numbers.
        metrics: by task, the metrics in the first row.
        other_filters: by task, for each filter its documents and the sum of the same metric.
    """

    logs: tuple[Log, ...]
    contents: list[bytes] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)
    log: array[int] = field(default_factory=lambda: array("l"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    drawn: list[int] = field(default_factory=list)
    clusters: list[bytes] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    prompts: array[int] = field(default_factory=lambda: array("q"))
    golds: array[int] = field(default_factory=lambda: array("q"))
    endings: list[str] = field(default_factory=list)
    owners: array[int] = field(default_factory=lambda: array("l"))
    scores: array[float] = field(default_factory=lambda: array("d"))
    texts: array[int] = field(default_factory=lambda: array("q"))
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    unscored: Counter[str] = field(default_factory=Counter)
    unmeasured: Counter[str] = field(default_factory=Counter)
    scales: dict[str, Scale] = field(default_factory=dict)
    metrics: dict[str, list[str]] = field(default_factory=dict)
    other_filters: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)

    def add_document(
        self, sample: Sample, content: bytes, log: int, cluster: str | None, by: str | None
    ) -> None:
        """Add the document of its first response, without that response.

        Args:
            sample: the response.
            content: hash of the document.
            log: index of its log.
            cluster: see ``read_outcomes``.
            by: see ``read_outcomes``.

        Raises:
            UserError: a field is missing.
        """
        self.contents.append(content)
        self.numbers.append(sample.number)
        self.log.append(log)
        self.lines.append(sample.line)
        self.drawn.append(0)
        self.prompts.append(hash(sample.prompt) if sample.prompt else 0)
        self.golds.append(_hash_text(None if sample.gold is None else str(sample.gold)))
        self.endings.append(sample.ended)
        if cluster is not None:
            place = self.logs[log].name_entry(sample.line)
            self.clusters.append(hash_value(find_field(sample.problem, cluster, place)))
        if by is not None:
            place = self.logs[log].name_entry(sample.line)
            group = find_field(sample.problem, by, place)
            self.groups.append(group if isinstance(group, str) else encode_canonical(group))

    def describe_place(self, document: int) -> str:
        """Return a document's file and line, for messages."""
        return self.logs[self.log[document]].name_entry(self.lines[document])

    def find_task(self, document: int) -> str:
        """Return the task of a document."""
        return self.logs[self.log[document]].task

    def count_responses(self, document: int) -> int:
        """Return the number of responses to a document."""
        return self.drawn[document].bit_count()

    def find_only_texts(self) -> NDArray[np.int64]:
        """Return the hash of each document's only response, shape (P,); 0 if it has not one."""
        texts = np.zeros(len(self.contents), dtype=np.int64)
        owners = np.frombuffer(self.owners, dtype=np.int64)
        texts[owners] = np.frombuffer(self.texts, dtype=np.int64)
        texts[np.bincount(owners, minlength=len(texts)) != 1] = 0
        return texts


def choose_metrics(run: Evaluation, metric: str | None, filter: str | None) -> dict[str, Metric]:
    """Choose for each task the metric and the filter: the user's, or else the first in its log.

    Raises:
        UserError: a log is empty, has no metric, or nothing in it was graded.
    """
    logs = {task: next(log for log in run.logs if log.task == task) for task in run.tasks}
    return {task: choose_metric(log, metric, filter) for task, log in logs.items()}


def choose_metric(log: Log, metric: str | None, filter: str | None) -> Metric:
    """Choose a log's metric and filter; see ``choose_metrics``."""
    first, filter_name, metrics = _read_names(log, filter)
    chosen = metric or next(iter(metrics), None)
    if chosen is None:
        raise UserError(
            f"{log.name_entry(first.line)}: names no metrics; expected a log of {log.kind} whose "
            f"responses were scored ({_REMEDY})"
        )
    _refuse_ungraded(log, chosen)
    return Metric(chosen, filter_name)


def choose_verdict_metric(
    log: Log, chosen: str | None, filter: str | None, default: str | None, remedy: str
) -> Metric:
    """Choose the score that decides which responses of a log passed; see the module's docstring.

    Args:
        log: the log.
        chosen: the metric that the user chose; None: none.
        filter: the filter; None: that of the first row.
        default: the metric of responses that are the only ones to their problem; None: the log's
            first.
        remedy: advice at the end of messages.

    Raises:
        UserError: the log has no score, or the metric is better when lower.
    """
    first, filter_name, metrics = _read_names(log, filter)
    if chosen is None and name_score(VERDICT, filter_name) in first.scores:
        return Metric(VERDICT, filter_name)
    if chosen is None and first.index >= 0 and PASS_AT_1 in metrics:
        return Metric(PASS_AT_1, filter_name)
    metric = chosen or default or next(iter(metrics), "")
    _refuse_ungraded(log, metric)
    if metric not in metrics:
        raise UserError(
            f"{log.name_entry(first.line)}: no metric {metric!r}; "
            f"{did_you_mean(metric, metrics)}; {remedy}"
        )
    if log.higher_is_better(metric) is False:
        raise UserError(
            f"{log.path}: {quote_unprintable(metric)} is better when lower (lm_eval's results "
            "file), so it cannot show what passed; choose another metric: --metric"
        )
    return Metric(metric, filter_name)


def find_first(log: Log, filter: str | None) -> Sample:
    """Find a log's first response, under a filter if one is chosen.

    Raises:
        UserError: there is none.
    """
    filters: dict[str, None] = {}
    for sample in log.read_samples():
        if filter is None or filter in list_filters(sample):
            return sample
        filters.update(dict.fromkeys(list_filters(sample)))
    if filter is None:
        raise UserError(f"{log.path}: has no responses; expected at least one")
    raise _unknown_filter_error(log, filter, filters)


def _read_names(log: Log, filter: str | None) -> tuple[Sample, str, list[str]]:
    """Return a log's first response, its first filter unless one is chosen, and its metrics."""
    first = find_first(log, filter)
    filter_name = filter or next(iter(list_filters(first)), NO_FILTER)
    return first, filter_name, list_metrics(first, filter_name)


def _unknown_filter_error(log: Log, filter: str | None, filters: Iterable[str]) -> UnknownFilter:
    names = tuple(filters)
    error = UnknownFilter(
        f"{log.path}: no row under filter {filter!r}; {did_you_mean(str(filter), names)}"
    )
    error.filters = names
    return error


def _refuse_ungraded(log: Log, metric: str) -> None:
    if metric == UNGRADED:
        raise UserError(
            f"{log.path}: nothing was graded (metric {UNGRADED!r}: a log of lm_eval "
            f"--predict_only); {_REMEDY}"
        )


def hash_problem(sample: Sample, log: Log, fields: Sequence[str] = (), side: int = 0) -> bytes:
    """Hash the document of a response, independently of the order of its keys.

    Args:
        sample: the response.
        log: its log.
        fields: only these fields; empty: all. ``A=B`` is field A before and field B after.
        side: 0 for a log before, 1 for a log after.

    Raises:
        UserError: a field is missing, or the log has no document.
    """
    content: Any = sample.problem
    if fields:
        place = log.name_entry(sample.line)
        pairs = [(field.split("=", 1) * 2)[:2] for field in fields]
        content = {pair[0]: find_field(content, pair[side], place) for pair in pairs}
    elif not content:
        raise UserError(
            f"{log.name_entry(sample.line)}: has no doc; expected the document, by which rows are "
            "joined"
        )
    return hash_value(content)


def _parse_score(sample: Sample, log: Log, key: str) -> float:
    """Return a score as a number; NaN if it is missing.

    Raises:
        UserError: it is not a number, or too large to be summed.
    """
    value = sample.scores.get(key)
    if value is None or value != value:
        return math.nan
    if isinstance(value, str) and value.strip().lower() in _MISSING_NUMBER_TEXTS:
        return math.nan
    if not isinstance(value, bool | int | float) or not abs(value) <= _MAX_NUMBER:
        text = json.dumps(value, default=str)[:60]
        raise UserError(
            f"{log.name_entry(sample.line)}: metric {key.rpartition(',')[0]!r} is {text}; expected "
            f"a number, up to {_MAX_NUMBER:g}, for each document (corpus-level metrics cannot be "
            "compared by document)"
        )
    return float(value)


def read_outcomes(
    run: Evaluation,
    metrics: Mapping[str, Metric],
    *,
    on: Sequence[str] = (),
    side: int = 0,
    cluster: str | None = None,
    by: str | None = None,
    common: bool = False,
) -> Outcomes:
    """Read an evaluation's outcomes, each task under its metric.

    Args:
        run: the evaluation.
        metrics: by task, the metric.
        on: fields that identify a document (``hash_problem``); empty: all.
        side: 0 for the logs before, 1 for logs after.
        cluster: the field that documents of one cluster share.
        by: the field to compare by.
        common: accept documents without a number if others have one.

    Raises:
        UserError: an invalid row, a missing field, a duplicate document, an unknown metric or
            filter, a document without a number, or rows whose mean differs from the reported one.
    """
    outcomes = Outcomes(run.logs)
    documents: dict[Any, int] = {}
    parts = []
    for number, log in enumerate(run.logs):
        # the task of a renamed file is unknown
        metric = metrics.get(log.task) or next(iter(metrics.values()))
        start = len(outcomes.contents)
        first_score = len(outcomes.scores)
        sums = outcomes.other_filters.setdefault(log.task, {})
        for sample in log.read_samples():
            # A row of another filter only adds to its sum
            filters = list_filters(sample) or [metric.filter]
            _add_to_sums(sums, sample, metric.metric, filters)
            if metric.filter not in filters:
                continue
            if log.task not in outcomes.metrics:
                outcomes.metrics[log.task] = list_metrics(sample, metric.filter)
            # Find the document, and add the response
            content = hash_problem(sample, log, on, side)
            document = _find_document(outcomes, documents, content, sample, number)
            if document == len(outcomes.contents):
                outcomes.add_document(sample, content, number, cluster, by)
            else:
                outcomes.endings[document] = "unknown"
            outcomes.drawn[document] |= _encode_index(sample.index)
            if metric.key in sample.scores or not sample.scores:
                outcomes.owners.append(document)
                outcomes.scores.append(_parse_score(sample, log, metric.key))
                outcomes.texts.append(_hash_text(sample.text))
        # Compute each document's number
        if start == len(outcomes.contents):
            raise _unknown_filter_error(log, metric.filter, sums)
        parts.append(_measure_log(outcomes, log, metric, start, first_score, common=common))
    outcomes.values = np.concatenate(parts)
    return outcomes


def _hash_text(text: str | None) -> int:
    """Hash a text; 0 without one. The hash of an empty text, which is 0 in Python, is 1."""
    return 0 if text is None else hash(text) or 1


def _add_to_sums(
    sums: dict[str, tuple[int, float]], sample: Sample, metric: str, filters: Sequence[str]
) -> None:
    """Add the metric under each filter to the filter's count and sum."""
    for name in filters:
        value = sample.scores.get(name_score(metric, name))
        count, total = sums.get(name, (0, 0.0))
        if isinstance(value, bool | int | float) and abs(value) <= _MAX_NUMBER:
            count, total = count + 1, total + value
        sums[name] = count, total


def _encode_index(index: int) -> int:
    """Return the bit of a response's index in ``Outcomes.drawn``."""
    return 1 << (index - GREEDY)


def _find_document(
    outcomes: Outcomes, documents: dict[Any, int], content: bytes, sample: Sample, log: int
) -> int:
    """Find the document of a response by task and content; a new one has the next number.

    Documents with equal contents are distinguished by their numbers in the log.

    Raises:
        UserError: the response was read already, or two shards share a document.
    """
    task = outcomes.logs[log].task
    document = 0
    for key in ((task, content), (task, content, str(sample.number))):
        document = documents.setdefault(key, len(outcomes.contents))
        if document == len(outcomes.contents):
            return document
        if outcomes.log[document] != log:
            raise repeated_task_error(outcomes.logs[outcomes.log[document]], outcomes.logs[log])
        if not outcomes.drawn[document] & _encode_index(sample.index):
            return document
        if outcomes.numbers[document] == sample.number:
            break
    raise UserError(
        f"{outcomes.describe_place(document)} and "
        f"{outcomes.logs[log].name_entry(sample.line)}: duplicate document (doc_id "
        f"{quote_unprintable(str(sample.number))}); check whether a log was written twice, or "
        "choose fields for --on that identify documents"
    )


def _measure_log(
    outcomes: Outcomes, log: Log, metric: Metric, start: int, first_score: int, *, common: bool
) -> NDArray[np.float64]:
    """Compute the numbers of the documents of the log that was read last.

    Args:
        outcomes: the table.
        log: the log.
        metric: its metric.
        start: the log's first document.
        first_score: the log's first score.
        common: see ``read_outcomes``.

    Raises:
        UserError: see ``read_outcomes``.
    """
    total = len(outcomes.contents) - start
    owners = np.array(outcomes.owners[first_score:], dtype=np.int64) - start
    scores = np.array(outcomes.scores[first_score:])
    values = _compute_means(owners, scores, total)
    missing = np.flatnonzero(np.bincount(owners[np.isnan(scores)], minlength=total))
    measured = total - int(np.isnan(values).sum())
    if not measured and not missing.size:
        raise UserError(
            f"{log.path}: unknown metric {metric.metric!r}; "
            f"{did_you_mean(metric.metric, outcomes.metrics[log.task])}"
        )
    if missing.size and not (common and measured):
        place = outcomes.describe_place(start + int(missing[0]))
        remedy = "--common compares only documents that all logs score" if measured else _REMEDY
        raise UserError(
            f"{place}: metric {metric.metric!r} has no number; expected a number; "
            f"{missing.size:,} of {total:,} documents have none; {remedy}"
        )
    scale = find_scale(log, metric.metric, metric.filter, values)
    compared = scale.apply(values)
    outcomes.scales[log.task] = scale
    outcomes.unscored[log.task] += missing.size
    outcomes.unmeasured[log.task] += int(np.isnan(compared).sum()) - missing.size
    return compared


def _compute_means(
    owners: NDArray[np.int64], scores: NDArray[np.float64], documents: int
) -> NDArray[np.float64]:
    """Compute each document's mean score, shape (documents,); NaN without one."""
    counts = np.bincount(owners, minlength=documents)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.bincount(owners, scores, documents) / counts
    first = np.zeros(documents)
    first[owners[::-1]] = scores[::-1]
    varies = np.bincount(owners, scores != first[owners], documents) > 0
    return np.where(varies | (counts == 0), means, first)  # the mean of equal numbers is exact


def count_passing(
    outcomes: Outcomes, documents: Sequence[int], metric: Metric, remedy: str
) -> list[list[float]]:
    """Return the scores of each response to some documents, which are all 0 and 1, or all a rate.

    The sum is the number of responses that passed.

    Args:
        outcomes: the outcomes under ``metric``.
        documents: the documents.
        metric: the score that decides.
        remedy: advice at the end of messages.

    Raises:
        UserError: a response has no outcome, or a rate is not that of an integer number.
    """
    scores: dict[int, list[float]] = {document: [] for document in documents}
    for document, value in zip(outcomes.owners, outcomes.scores, strict=True):
        if document in scores:
            scores[document].append(value)
    for document, values in scores.items():
        place = outcomes.describe_place(document)
        count = outcomes.count_responses(document)
        if len(values) != count:
            raise UserError(
                f"{place}: {count} responses, and {quote_unprintable(metric.metric)} does not say "
                f"how many of them passed; {remedy}"
            )
        if all(value in (0, 1) for value in values):
            continue
        total = sum(values)
        is_rate = metric.metric == PASS_AT_1 and count > 1 and len({*values}) == 1
        if not is_rate:
            wrong = next(value for value in values if value not in (0, 1))
            raise UserError(
                f"{place}: {quote_unprintable(metric.metric)} is {wrong:g}, expected 0 or 1; "
                f"{remedy}"
            )
        if abs(total - round(total)) > _COUNT_TOLERANCE or not 0 <= total <= count:
            raise UserError(
                f"{place}: {PASS_AT_1} is {values[0]} over {count} responses, which is not an "
                "integer number of them; expected the unbiased pass@1 over all samples"
            )
    return list(scores.values())
