"""Read plain JSON lines: one response per line, with its problem's id, prompt or document."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.core.json_values import as_object
from gapft_harness.core.records import FINISH_REASONS, GREEDY
from gapft_harness.importing.rows import ImportChoice, ImportedResponse, Key, text_of, verdict_of
from gapft_harness.verdicts.places import Log
from gapft_harness.verdicts.sample_logs import LogRow, canonical, grouped, records

_NAMES = ("id", "prompt", "doc")
_KEYS = (*_NAMES, "index", "text", "passed", "finish_reason")
#: A larger number of a sample is a mistake.
_MOST = 1_000_000


def read_plain(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yield the responses of a file.

    Raises:
        UserError: a line is malformed; the message has file and line.
    """
    for line, _, record, place in records(path):
        yield _response(line, record, place, choice, greedy)


def plain_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each greedy response, and one for all samples, under the filter ``samples``.

    Raises:
        UserError: as in ``read_plain``.
    """
    for lines in grouped(log.path, _problem):
        rows = [_response(*one, ImportChoice([]), True) for one in lines]
        rows.sort(key=lambda row: row.index)
        by, value = rows[0].key
        told = [row.verdict.passed for row in rows if row.verdict is not None]
        if 0 < len(told) < len(rows):
            raise UserError(
                f"{rows[0].place}: only {len(told)} of {len(rows)} samples have a verdict; "
                "expected all or none"
            )
        yield LogRow.of(
            *(log, lines[0][0], value if by == "doc" else {by: value}, [row.text for row in rows]),
            passed=told,
            filter="none" if rows[0].index == GREEDY else "samples",
            arguments={"gen_args_0": {"arg_0": value if by == "prompt" else None}},
        )


def _problem(record: dict[str, Any], place: str) -> Hashable:
    """Return the key of a response's row: its problem, and whether it is greedy."""
    return canonical(_key(record, place)), record.get("index", "greedy") == "greedy"


def _response(
    line: int, record: dict[str, Any], place: str, choice: ImportChoice, greedy: bool
) -> ImportedResponse:
    field = choice.metric or "passed"
    refuse_unknown(record, (*_KEYS, field), place)
    finish = record.get("finish_reason", "unknown")
    if finish not in FINISH_REASONS:
        raise UserError(
            f"{place}: finish_reason is {finish!r:.60}, expected {', '.join(FINISH_REASONS)}"
        )
    verdict = None
    if field in record and not choice.judge:
        verdict = verdict_of(record[field], field, place)
    return ImportedResponse(
        line,
        place,
        _key(record, place),
        _index(record.get("index", "greedy" if greedy else None), place),
        text_of(record, "text", place),
        verdict,
        field,
        finish,
    )


def _key(record: dict[str, Any], place: str) -> Key:
    named = [name for name in _NAMES if name in record]
    if len(named) != 1:
        raise UserError(
            f"{place}: identifies its problem by {' and '.join(named) or 'nothing'}; expected one "
            "of the keys id, prompt and doc"
        )
    if named == ["doc"]:
        return "doc", as_object(record["doc"], f"{place}: doc")
    return named[0], text_of(record, named[0], place)


def _index(value: Any, place: str) -> int:
    if value == "greedy":
        return GREEDY
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST:
        return value
    raise UserError(
        f"{place}: index is {json.dumps(value)[:60]}, expected 'greedy' or the sample's number, "
        "from 0"
    )
