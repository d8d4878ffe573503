"""Sample logs of lm_eval: a row for each document and filter, with one response or several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.compare.reading import (
    document_of,
    filter_of,
    metrics_of,
    records,
    said,
    texts_of,
    value_of,
)
from gapft_harness.core.errors import UserError, did_you_mean, plain
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.core.text import whole_text
from gapft_harness.importing.rows import Choice, Row, taken, verdict_of

#: The one metric that speaks of all responses of a row.
_OF_ALL = "pass@1"


def read_log(path: Path, choice: Choice, greedy: bool) -> Iterator[Row]:
    """Yields the responses of a log, under one filter.

    Raises:
        UserError: a row is damaged, or does not tell which of its responses passed; it names file
            and line.
    """
    chosen, filters, found = choice.filter, dict[str, None](), False
    for line, _, record, place in records(path):
        filters[filter_of(record)] = None
        chosen = filter_of(record) if chosen is None else chosen
        if filter_of(record) != chosen:
            continue
        found = True
        texts = texts_of(record, place)
        if greedy and len(texts) > 1:
            raise UserError(
                f"{place}: {len(texts)} responses to one document; expected a log of the greedy "
                "decode, with one"
            )
        key = "doc", document_of(record, place)
        verdicts, by, rule = _verdicts(record, choice, len(texts), place)
        for number, (text, verdict) in enumerate(zip(texts, verdicts, strict=True)):
            index = GREEDY if greedy else number
            yield Row(line, place, key, index, whole_text(text), verdict, by, rule=rule)
    if not found:
        raise UserError(
            f"{path}: holds no row under filter {chosen!r}; {did_you_mean(str(chosen), filters)}"
        )


def _verdicts(
    record: dict[str, Any], choice: Choice, count: int, place: str
) -> tuple[list[Verdict] | list[None], str, dict[str, str]]:
    """The row's verdict on each response, what tells them, and what must be alike in all rows."""
    if choice.judge:
        return [None] * count, "", {}
    statuses = None if choice.metric else said(record, count)
    if statuses is not None:
        return [taken(passed) for passed in statuses], "its verdicts", {}
    metric = choice.metric or (_OF_ALL if count > 1 else metrics_of(record, place)[0])
    rule = {"filter": filter_of(record)}
    by = f"{metric} under filter {rule['filter']}"
    if count == 1:
        rule["metric"] = metric
        return [verdict_of(value_of(record, metric, place), plain(metric), place)], by, rule
    if metric != _OF_ALL or metric not in record or record[metric] not in (0, 1):
        shown = f"; {_OF_ALL} is {record[_OF_ALL]!r:.20}" if _OF_ALL in record else ""
        raise UserError(
            f"{place}: {count} responses, and nothing says which of them passed{shown}; expected "
            "verdicts on each, as gapft's tasks log them, or one log for each sample; or have the "
            "task's verifier judge (--judge)"
        )
    return [taken(record[metric] == 1)] * count, by, rule
