"""Read plain JSON lines: one response per line, with its problem's id, prompt or document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.core.json_values import read_objects, require_object
from gapft_harness.core.records import FINISH_REASONS, GREEDY
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.outcomes.samples import (
    NO_FILTER,
    PASS_AT_1,
    Sample,
    name_score,
)

_NAMES = ("id", "prompt", "doc")
_KEYS = (*_NAMES, "index", "text", "passed", "finish_reason")
#: The filter of samples: they and the deployment decode are scored apart.
_SAMPLES = "samples"
#: A larger number of a sample is a mistake.
_MAX_INDEX = 1_000_000


def read_json_lines(path: Path) -> Iterator[Sample]:
    """Yield a sample for each line; ``passed`` is its pass@1, any other number another metric.

    Raises:
        UserError: a line is malformed; the message has file and line.
    """
    for line, record, place in read_objects(path):
        metrics = [key for key, value in record.items() if isinstance(value, bool | int | float)]
        refuse_unknown(record, (*_KEYS, *metrics), place)
        finish_reason = record.get("finish_reason", "unknown")
        if finish_reason not in FINISH_REASONS:
            raise UserError(
                f"{place}: finish_reason is {finish_reason!r:.60}, expected "
                f"{', '.join(FINISH_REASONS)}"
            )
        index = _parse_index(record.get("index", "greedy"), place)
        filter_name = NO_FILTER if index == GREEDY else _SAMPLES
        own = {PASS_AT_1: record.get("passed")}
        own |= {name: record[name] for name in metrics if name not in _KEYS}
        yield Sample(
            problem=_find_problem(record, place),
            index=index,
            scores={name_score(name, filter_name): value for name, value in own.items()},
            text=_read_text(record, "text", place),
            prompt=record.get("prompt", ""),
            ended=finish_reason,
            line=line,
        )


def _find_problem(record: Mapping[str, Any], place: str) -> dict[str, Any]:
    names = [name for name in _NAMES if name in record]
    if len(names) != 1:
        raise UserError(
            f"{place}: identifies its problem by {' and '.join(names) or 'nothing'}; expected one "
            "of the keys id, prompt and doc"
        )
    if names == ["doc"]:
        return require_object(record["doc"], f"{place}: doc")
    return {names[0]: _read_text(record, names[0], place)}


def _parse_index(value: Any, place: str) -> int:
    if value == "greedy":
        return GREEDY
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_INDEX:
        return value
    raise UserError(
        f"{place}: index is {json.dumps(value)[:60]}, expected 'greedy' or the sample's number, "
        "from 0"
    )


def _read_text(record: Mapping[str, Any], field: str, place: str) -> str:
    value = record.get(field)
    if not isinstance(value, str):
        found = json.dumps(value, default=str)[:60] if field in record else "nothing"
        raise UserError(f"{place}: key {field!r}: found {found}; expected a string")
    return replace_text_surrogates(value)
