"""How many of several samples a document passed, from logs of the model before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.compare.choice import Choice
from gapft_harness.compare.joining import Item
from gapft_harness.compare.places import Run, runs_of
from gapft_harness.compare.reading import (
    Figure,
    content,
    document_of,
    filter_of,
    records,
    value_of,
)
from gapft_harness.core.errors import UserError

#: How far n times a logged Pass@1 may be from a whole number.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Samples:
    """The source's samples of the compared documents.

    Attributes:
        passing: shape (P,), how many passed.
        k: K, samples of each document.
    """

    passing: NDArray[np.int64]
    k: int


def source_samples(
    arguments: Sequence[str], items: Sequence[Item], figure: Figure, choice: Choice
) -> Samples:
    """Counts each document's passing samples, over all logs named.

    A row tells of several samples by ``verdicts``, which our tasks log, or by an unbiased
    ``pass@1`` over its responses; else it is one sample, and its metric says whether it passed.

    Args:
        arguments: files, folders or globs; several runs are further samples.
        items: the documents.
        figure: the metric and filter for rows of one sample.
        choice: how documents are joined.

    Raises:
        UserError: a document has none, or not as many as another, or a row does not tell.
    """
    runs = [run for argument in arguments for run in runs_of(argument)]
    found: dict[tuple[bytes, str], list[int]] = {}
    places: dict[tuple[bytes, str], str] = {}
    repeated = {item[1] for item in items if item[2]}
    for run in runs:
        for key, passing, samples, place in _counts(run, repeated, figure, choice):
            sums = found.setdefault(key, [0, 0])
            sums[0] += passing
            sums[1] += samples
            places[key] = place
    keys = [(digest, doc_id) for _, digest, doc_id in items]
    if len(set(keys)) < len(keys):
        raise UserError(
            "--source-samples: two of the compared tasks have a document in common, so that "
            "samples of it cannot be told apart; take one task: --task NAME"
        )
    lacking = [key for key in keys if key not in found]
    if lacking:
        raise UserError(
            f"--source-samples {arguments[0]}: holds no sample of {len(lacking)} of {len(keys)} "
            "compared documents; sample all of them"
        )
    sizes = sorted({found[key][1] for key in keys})
    if len(sizes) > 1:
        few = next(key for key in keys if found[key][1] == sizes[0])
        raise UserError(
            f"{places[few]}: {sizes[0]} samples of this document where another has {sizes[-1]}; "
            "expected as many of each"
        )
    return Samples(np.array([found[key][0] for key in keys], dtype=np.int64), sizes[0])


def _counts(
    run: Run, repeated: set[bytes], figure: Figure, choice: Choice
) -> list[tuple[tuple[bytes, str], int, int, str]]:
    counted = []
    seen: dict[tuple[str, bytes, str], str] = {}
    for log in run.logs:
        for _, _, record, place in records(log.path):
            told = _told(record, figure, place)
            if told is None:
                continue
            digest = content(document_of(record, place), choice.on, place)
            doc_id = str(record.get("doc_id")) if digest in repeated else ""
            if (log.task, digest, doc_id) in seen:
                raise UserError(
                    f"{seen[log.task, digest, doc_id]} and {place}: the same document twice; is a "
                    "log of samples written to twice?"
                )
            seen[log.task, digest, doc_id] = place
            counted.append(((digest, doc_id), *told, place))
    return counted


def _told(record: dict[str, Any], figure: Figure, place: str) -> tuple[int, int] | None:
    """Passing samples and samples of a row; None where it is of another filter."""
    verdicts = record.get("verdicts")
    if isinstance(verdicts, list) and verdicts:
        statuses = [of.get("status") if isinstance(of, dict) else None for of in verdicts]
        return statuses.count("pass"), len(statuses)
    if "pass@1" in record and (samples := _responses(record)) > 1:
        passing = value_of(record, "pass@1", place) * samples
        if abs(passing - round(passing)) > _ROUNDING or not 0 <= round(passing) <= samples:
            raise UserError(
                f"{place}: pass@1 is {record['pass@1']} over {samples} responses, which is no "
                "whole number of them; expected the unbiased pass@1 over all samples"
            )
        return round(passing), samples
    if filter_of(record) != figure.filter:
        return None
    value = value_of(record, figure.metric, place)
    if value not in (0, 1):
        raise UserError(
            f"{place}: {figure.metric} is {value:g}, which tells of no sample whether it passed; "
            "expected verdicts, pass@1 over several responses, or a metric of 0 or 1"
        )
    return int(value), 1


def _responses(record: dict[str, Any]) -> int:
    responses = record.get("resps")
    if not isinstance(responses, list) or not responses or not isinstance(responses[0], list):
        return 0
    return len(responses[0])
