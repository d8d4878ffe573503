"""What a log's reader yields: one response, and the scores that the log gives to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gapft_harness.core.errors import UserError, did_you_mean

#: The filter of logs that have none, as lm_eval names it.
NO_FILTER = "none"
#: The score of the log's own verdicts on single responses.
VERDICT = "verdict"
#: The score that is the share of a document's responses that passed.
PASS_AT_1 = "pass@1"
#: The number of bytes of a hash: any two of ten billion are equal with a probability of 1e-19.
_DIGEST_BYTES = 16

encode_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Sample(NamedTuple):
    """One response to a problem.

    Attributes:
        problem: the document; ``{"id": …}`` or ``{"prompt": …}`` if the log has only that.
        index: ``records.GREEDY`` for the only response to the problem, else the sample's number.
        scores: numbers by ``METRIC,FILTER``, in the log's order: None (or NaN) where the log has a
            score but no number. A rate of a problem's responses is the score of each of them; any
            other number of the problem is the score of the first, and the others have ``,FILTER``.
        text: the response; None if there is none, because options were scored.
        gold: the right answer; None if the log has none.
        prompt: the model's input; "" if unknown.
        answer: the answer that the filter read in the response, or the chosen option.
        reason: why the response failed, or why there is none.
        ended: how the response ended, one of ``records.FINISH_REASONS``.
        tokens: the length of the response; None if unknown.
        line: its line in the log, from 1; Inspect's sample, lighteval's row.
        number: the log's own number of the problem, for messages; None if it has none.
    """

    problem: Mapping[str, Any]
    index: int  # type: ignore[assignment]  # a method of tuples
    scores: Mapping[str, Any]
    text: str | None = ""
    gold: Any = None
    prompt: str = ""
    answer: str | None = None
    reason: str = ""
    ended: str = "unknown"
    tokens: int | None = None
    line: int = 0
    number: Any = None

    @property
    def response(self) -> str:
        """The response for people: its text, or the chosen option."""
        return str(self.answer) if self.text is None else self.text

    @property
    def question(self) -> str:
        """The prompt for people; the document if the log has no prompt."""
        return self.prompt or json.dumps(dict(self.problem), ensure_ascii=False)


def name_score(metric: str, filter: str = NO_FILTER) -> str:
    """Name a score as lm_eval's results do."""
    return f"{metric},{filter}"


def list_filters(sample: Sample) -> list[str]:
    """List the filters under which a sample has scores."""
    return _list_filters(tuple(sample.scores))


def select_samples(samples: Iterable[Sample], filter: str | None) -> Iterator[Sample]:
    """Yield the samples under a filter; one without scores belongs to every filter."""
    return (
        sample
        for sample in samples
        if filter is None or filter in (list_filters(sample) or [filter])
    )


@lru_cache
def _list_filters(names: tuple[str, ...]) -> list[str]:
    """List the filters of some scores; the rows of a log have few different sets of them."""
    return list(dict.fromkeys(name.rpartition(",")[2] for name in names))


def list_metrics(sample: Sample, filter: str) -> list[str]:
    """List the metrics of a sample under a filter, without the log's verdicts."""
    pairs = (name.rpartition(",") for name in sample.scores)
    return [metric for metric, _, own in pairs if own == filter and metric not in ("", VERDICT)]


def spread_scores(
    numbers: Mapping[str, Any], filter: str, count: int, verdicts: Sequence[bool] = ()
) -> list[dict[str, Any]]:
    """Give a document's numbers to its responses.

    Args:
        numbers: the numbers by metric.
        filter: the filter.
        count: the number of responses.
        verdicts: whether each response passed; empty: unknown.
    """
    scores: list[dict[str, Any]] = [
        {name_score(name, filter): value for name, value in numbers.items()}
    ]
    for _ in range(count - 1):
        has_rate = PASS_AT_1 in numbers
        name = name_score(PASS_AT_1 if has_rate else "", filter)
        scores.append({name: numbers[PASS_AT_1] if has_rate else None})
    for score, passed in zip(scores, verdicts, strict=False):
        score[name_score(VERDICT, filter)] = float(passed)
    return scores


def find_field(document: Mapping[str, Any], name: str, place: str) -> Any:
    """Return a field of a document; dots select nested fields.

    Raises:
        UserError: the field is missing or null.
    """
    value: Any = document.get(name)
    if value is None and "." in name:
        value = document
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise UserError(
            f"{place}: doc has no field {name!r}, or it is null; {did_you_mean(name, document)}"
        )
    return value


def hash_value(value: Any) -> bytes:
    """Hash a JSON value, independently of the order of keys."""
    return hashlib.sha256(encode_canonical(value).encode()).digest()[:_DIGEST_BYTES]
