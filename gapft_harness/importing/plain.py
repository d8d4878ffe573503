"""Read plain JSON lines: one response per line, with its problem's id, prompt or document."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.core.json_values import require_object
from gapft_harness.core.records import FINISH_REASONS, GREEDY
from gapft_harness.importing.rows import (
    ImportChoice,
    ImportedResponse,
    Key,
    parse_verdict,
    read_text_field,
)
from gapft_harness.verdicts.log_files import Log
from gapft_harness.verdicts.sample_logs import LogRow, encode_canonical, group_records, read_records

_NAMES = ("id", "prompt", "doc")
_KEYS = (*_NAMES, "index", "text", "passed", "finish_reason")
#: A larger number of a sample is a mistake.
_MAX_INDEX = 1_000_000


def read_plain(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yield the responses of a file.

    Raises:
        UserError: a line is malformed; the message has file and line.
    """
    for line, _, record, place in read_records(path):
        yield _build_response(line, record, place, choice, greedy)


def read_plain_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each greedy response, and one for all samples, under the filter ``samples``.

    Raises:
        UserError: as in ``read_plain``.
    """
    for lines in group_records(log.path, _identify_problem):
        rows = [_build_response(*item, ImportChoice([]), True) for item in lines]
        rows.sort(key=lambda row: row.index)
        by, value = rows[0].key
        verdicts = [row.verdict.passed for row in rows if row.verdict is not None]
        if 0 < len(verdicts) < len(rows):
            raise UserError(
                f"{rows[0].place}: only {len(verdicts)} of {len(rows)} samples have a verdict; "
                "expected all or none"
            )
        yield LogRow.of(
            *(log, lines[0][0], value if by == "doc" else {by: value}, [row.text for row in rows]),
            passed=verdicts,
            filter="none" if rows[0].index == GREEDY else "samples",
            arguments={"gen_args_0": {"arg_0": value if by == "prompt" else None}},
            finish_reasons=[row.finish_reason for row in rows],
        )


def _identify_problem(record: dict[str, Any], place: str) -> Hashable:
    """Return the key of a response's row: its problem, and whether it is greedy."""
    return encode_canonical(_find_key(record, place)), record.get("index", "greedy") == "greedy"


def _build_response(
    line: int, record: dict[str, Any], place: str, choice: ImportChoice, greedy: bool
) -> ImportedResponse:
    field = choice.metric or "passed"
    refuse_unknown(record, (*_KEYS, field), place)
    finish_reason = record.get("finish_reason", "unknown")
    if finish_reason not in FINISH_REASONS:
        raise UserError(
            f"{place}: finish_reason is {finish_reason!r:.60}, expected {', '.join(FINISH_REASONS)}"
        )
    verdict = None
    if field in record and not choice.judge:
        verdict = parse_verdict(record[field], field, place)
    return ImportedResponse(
        line,
        place,
        _find_key(record, place),
        _parse_index(record.get("index", "greedy" if greedy else None), place),
        read_text_field(record, "text", place),
        verdict,
        field,
        finish_reason,
    )


def _find_key(record: dict[str, Any], place: str) -> Key:
    names = [name for name in _NAMES if name in record]
    if len(names) != 1:
        raise UserError(
            f"{place}: identifies its problem by {' and '.join(names) or 'nothing'}; expected one "
            "of the keys id, prompt and doc"
        )
    if names == ["doc"]:
        return "doc", require_object(record["doc"], f"{place}: doc")
    return names[0], read_text_field(record, names[0], place)


def _parse_index(value: Any, place: str) -> int:
    if value == "greedy":
        return GREEDY
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_INDEX:
        return value
    raise UserError(
        f"{place}: index is {json.dumps(value)[:60]}, expected 'greedy' or the sample's number, "
        "from 0"
    )
