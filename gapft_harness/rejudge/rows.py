"""Rows of sample logs as what is judged: responses, their gold, and what the log says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.compare.places import Log
from gapft_harness.compare.reading import (
    content,
    filter_of,
    metrics_of,
    records,
    said,
    texts_of,
    value_of,
)
from gapft_harness.core.errors import UserError, did_you_mean, plain
from gapft_harness.core.records import Gold
from gapft_harness.rejudge.choice import Choice
from gapft_harness.rejudge.golds import Golds, golds_of
from gapft_harness.rejudge.judge import Judge


@dataclass(frozen=True, slots=True)
class Row:
    """One document of a log.

    Attributes:
        log: number of the log.
        line: from 1.
        offset: the byte where its line begins.
        doc_id: lm_eval's number of it.
        content: hash of the document, by which it is known in other logs.
        texts: its responses.
        gold: the gold answer.
        passed: of each response, whether the log says that it is right; empty where it is not
            asked.
        answers: what the log's filter read of each response, where it keeps that.
    """

    log: int
    line: int
    offset: int
    doc_id: str
    content: bytes
    texts: Sequence[str]
    gold: Gold
    passed: Sequence[bool]
    answers: Sequence[str | None]


@dataclass(slots=True)
class Reading:
    """How a log's rows are read; filled in from the first.

    Attributes:
        filter: lm_eval's filter whose rows are taken.
        metric: what says whether a response was right; empty where that is not asked.
        by_verdicts: whether the log's verdicts say it instead; ``metric`` is then the first.
        golds: where the gold answers are.
        filters: all filters that were met.
        metrics: the metrics that the first row names.
    """

    filter: str
    metric: str
    by_verdicts: bool
    golds: Golds
    filters: dict[str, None]
    metrics: Sequence[str]


def read(number: int, log: Log, choice: Choice, judge: Judge) -> tuple[Reading, Iterator[Row]]:
    """How a log is read, and its rows one after another, one line in memory at a time.

    Raises:
        UserError: it is empty, or its first row is no response of lm_eval's; later of any row.
    """
    for _, _, record, place in records(log.path):
        filters = dict.fromkeys([filter_of(record)])
        named = metrics_of(record, place)
        metric = "" if choice.was else choice.metric or named[0]
        chosen = choice.filter or filter_of(record)
        count = len(texts_of(record, place))
        by_verdicts = bool(metric) and not choice.metric and said(record, count) is not None
        if not by_verdicts:
            _refuse_lower(log, metric)
        golds = golds_of(record, place, choice.gold, judge)
        reading = Reading(chosen, metric, by_verdicts, golds, filters, named)
        return reading, _rows(number, log, reading, judge)
    raise UserError(f"{log.path}: is empty; expected a JSON object a line")


def _rows(number: int, log: Log, reading: Reading, judge: Judge) -> Iterator[Row]:
    found = False
    for line, offset, record, place in records(log.path):
        of = filter_of(record)
        reading.filters[of] = None
        if of != reading.filter:
            continue
        found = True
        texts = texts_of(record, place)
        yield Row(
            *(number, line, offset, str(record.get("doc_id"))),
            content({"doc": record.get("doc", place)}, (), place),
            texts,
            reading.golds.of(record, place, judge),
            _passed(record, reading, len(texts), place) if reading.metric else (),
            _filtered(record, len(texts)),
        )
    if not found:
        raise UserError(
            f"{log.path}: holds no row under filter {reading.filter!r}; "
            f"{did_you_mean(reading.filter, reading.filters)}"
        )


def _passed(record: dict[str, Any], reading: Reading, count: int, place: str) -> list[bool]:
    """Of each response, whether it was right: by the logged verdicts, or of one by its metric."""
    metric = reading.metric
    if reading.by_verdicts:
        if (told := said(record, count)) is None:
            raise UserError(
                f"{place}: has no verdict on each response, as the log's first row has; name the "
                "metric that says who was right (--metric), or the rule (--was VERIFIER)"
            )
        return told
    value = value_of(record, metric, place)
    if count > 1:
        raise UserError(
            f"{place}: {count} responses, and {plain(metric)} does not say which of them were "
            "right; name the rule that the new one is held against: --was VERIFIER"
        )
    if value not in (0, 1):
        raise UserError(
            f"{place}: {plain(metric)} is {value:g}, expected 0 or 1; name another metric "
            "(--metric), or the rule that the new one is held against (--was VERIFIER)"
        )
    return [value == 1]


def _filtered(record: dict[str, Any], count: int) -> Sequence[str | None]:
    """What lm_eval's filter made of each response, where it keeps one text for each."""
    found = record.get("filtered_resps")
    while isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    texts = found if isinstance(found, list) else [found]
    if len(texts) == count and all(isinstance(text, str) for text in texts):
        return texts
    return [None] * count


def _refuse_lower(log: Log, metric: str) -> None:
    """Refuses a metric of which 1 is not right."""
    of_task = log.facts.get("higher_is_better", {}).get(log.task)
    if metric and isinstance(of_task, dict) and of_task.get(metric) is False:
        raise UserError(
            f"{log.path}: by lm_eval's results file beside it {plain(metric)} is better when "
            "lower, so that 1 is not right; name another: --metric"
        )
