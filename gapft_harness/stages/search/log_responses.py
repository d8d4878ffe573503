"""Read the responses of a log, with its verdicts, for a search."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.outcomes.logs import Log
from gapft_harness.outcomes.samples import (
    PASS_AT_1,
    VERDICT,
    Sample,
    list_filters,
    list_metrics,
    name_score,
)
from gapft_harness.outcomes.table import Metric, choose_verdict_metric, find_first
from gapft_harness.recipe.sections import LogResponses

#: The key of a row's problem: ``id``, ``prompt`` or ``doc``, and the id, prompt or document.
Key = tuple[str, Any]

_REMEDY = (
    "name another metric (search.responses.metric), one log for each sample, or have the task's "
    "verifier judge (search.responses.judge)"
)


@dataclass(frozen=True, slots=True)
class LoggedResponse:
    """One response of a log.

    Attributes:
        location: file and line, for messages.
        key: identifies its problem.
        index: ``GREEDY``, or a sample's number; in a format without numbers, the number within the
            log.
        text: the response.
        passed: the log's verdict; None where it has none, or the verifier judges.
        verdict_source: the source of the verdict in the log.
        finish_reason: ``stop``, ``length``, ``unknown`` or ``context``.
        rule: values by kind that must be equal in all rows; else the same text could pass and fail.
    """

    location: str
    key: Key
    index: int
    text: str
    passed: bool | None
    verdict_source: str
    finish_reason: str = "unknown"
    rule: Mapping[str, str] = field(default_factory=dict)


def is_numbered(log: Log) -> bool:
    """Return whether a log numbers samples over all files, and has greedy ones beside them."""
    return log.kind == "jsonl"


def read_responses(log: Log, settings: LogResponses, greedy: bool) -> Iterator[LoggedResponse]:
    """Yield the responses of a log, under one filter.

    Args:
        log: the log.
        settings: how to read the log.
        greedy: whether it contains only greedy responses.

    Raises:
        UserError: a row is damaged, or does not show which of its responses passed; the message has
            file and line.
    """
    first = find_first(log, settings.filter)
    filter_name = settings.filter or next(iter(list_filters(first)), None)
    metric = None if settings.judge else _choose_metric(log, settings, first, filter_name)
    for line, group in groupby(log.read_samples(), key=lambda sample: sample.line):
        samples = [
            sample
            for sample in group
            if is_numbered(log) or filter_name is None or filter_name in list_filters(sample)
        ]
        location = log.name_entry(line)
        if greedy and len(samples) > 1:
            raise UserError(
                f"{location}: found {len(samples)} responses to one document; expected one in a "
                "log of greedy decodes"
            )
        for number, sample in enumerate(samples):
            yield _build_response(
                log, sample, number, len(samples), location, metric, settings, greedy
            )


def _choose_metric(
    log: Log, settings: LogResponses, first: Sample, filter_name: str | None
) -> Metric:
    metrics = list_metrics(first, filter_name or "none")
    if log.kind == "inspect" and settings.metric is None and len(metrics) > 1:
        raise UserError(
            f"{log.path}: found several scores: {', '.join(metrics)}; choose one: "
            "search.responses.metric"
        )
    return choose_verdict_metric(log, settings.metric, settings.filter, None, _REMEDY)


def _build_response(
    log: Log,
    sample: Sample,
    number: int,
    count: int,
    location: str,
    metric: Metric | None,
    settings: LogResponses,
    greedy: bool,
) -> LoggedResponse:
    text = log.require_text(sample)
    # The log's verdict, and where it comes from
    passed = None
    source = ""
    rule = dict[str, str]()
    if metric is not None:
        filters = list_filters(sample) if is_numbered(log) else [metric.filter]
        passed = _read_verdict(sample, name_score(metric.metric, filters[0]), location, count)
        source = f"{metric.metric} under filter {metric.filter}"
        rule = {"filter": metric.filter, "metric": metric.metric}
        if metric.metric == VERDICT:
            source = "its verdicts"
            rule = {}
        elif is_numbered(log):
            source = metric.metric.replace(PASS_AT_1, "passed")
            rule = {}
        elif count > 1:
            rule.pop("metric")
    # Its number
    index = sample.index if is_numbered(log) or sample.index != GREEDY else number
    return LoggedResponse(
        location,
        _find_key(log, sample, settings),
        GREEDY if greedy and not is_numbered(log) else index,
        replace_text_surrogates(text),
        passed,
        source,
        sample.ended,
        rule,
    )


def _find_key(log: Log, sample: Sample, settings: LogResponses) -> Key:
    if log.kind == "inspect" and not settings.on:
        return "prompt", sample.prompt
    if is_numbered(log) and len(sample.problem) == 1:
        ((kind, value),) = sample.problem.items()
        if kind in ("id", "prompt"):
            return kind, value
    return "doc", dict(sample.problem)


def _read_verdict(sample: Sample, key: str, location: str, count: int) -> bool | None:
    """Read whether a response passed; None if the log does not tell.

    Raises:
        UserError: the score is not 0 or 1.
    """
    value: Any = sample.scores.get(key)
    metric = key.rpartition(",")[0]
    if value is None and count == 1:
        return None
    if count > 1 and (value is None or value not in (0, 1)):
        rate = "" if value is None else f" of {value:.3g}"
        raise UserError(
            f"{location}: {count} responses, and {metric}{rate} does not say which of them passed; "
            f"{_REMEDY}"
        )
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise UserError(
            f"{location}: {metric} is {json.dumps(value, default=str)[:60]}; expected a verdict, 0 "
            f"or 1 (false or true); {_REMEDY}"
        )
    return bool(value)
