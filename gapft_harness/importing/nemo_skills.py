"""Read NeMo-Skills' output: ``output.jsonl`` and ``output-rsSEED.jsonl``, a generation per line.

A line is the problem's record with additional fields for the generation and its judgement. Field
names and the forms of judgements are those of NeMo-Skills' code of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.importing.rows import (
    ImportChoice,
    ImportedResponse,
    create_verdict,
    parse_verdict,
    read_text_field,
)
from gapft_harness.verdicts.log_files import Log
from gapft_harness.verdicts.sample_logs import LogRow, read_records

#: Fields in which its evaluators record whether a generation is right.
_VERDICT_FIELDS = ("symbolic_correct", "is_correct", "judgement")
#: The marker before its judges' answers, in plain text or bold.
_MARKER = re.compile(r"\*{0,2}judgement\*{0,2}\s*:\s*\**\s*", re.IGNORECASE)
#: Other forms of its judges' answers: of its IMO benchmarks and its physics benchmarks.
_BOXED = re.compile(r"\\boxed\s*\{\s*(correct|incorrect)\s*\}", re.IGNORECASE)
_POINTS = re.compile(r"<points>\s*(\d+)\s*out of 7\s*</points>", re.IGNORECASE)
_BRACKETED = re.compile(r"\[(correct|incorrect)\]", re.IGNORECASE)
#: The fewest points of a right proof, of 7.
_MIN_POINTS = 6
#: Fields of the problem in a record; other fields belong to the generation.
_PROBLEM = ("problem", "expected_answer")
#: Fields that identify a problem, in its records and in the task's documents.
JOIN_FIELDS = (("problem", "problem"),)


def read_nemo_skills(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yield the responses of a file; it has one response to each problem.

    Raises:
        UserError: a line is malformed, or has no clear verdict; the message has file and line.
    """
    for line, _, record, place in read_records(path):
        verdict, field = (None, "") if choice.judge else _read_verdict(record, choice.metric, place)
        finish_reason = record.get("finish_reason")
        yield ImportedResponse(
            line,
            place,
            ("doc", record),
            GREEDY if greedy else 0,
            read_text_field(record, "generation", place),
            verdict,
            field,
            finish_reason if finish_reason in ("stop", "length") else "unknown",
            {"field": field},
        )


def read_nemo_skills_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each line; its metrics are the fields with verdicts.

    A field without a verdict, such as a truncated judgement, is not a number; this is an error only
    where this field is used as the metric.

    Raises:
        UserError: a line is not a JSON object, or has no generation.
    """
    for line, _, record, place in read_records(log.path):
        document = {name: record[name] for name in _PROBLEM if name in record}
        yield LogRow.of(
            *(log, line, document or record, [read_text_field(record, "generation", place)]),
            metrics={name: _read_field(record, name) for name in _VERDICT_FIELDS if name in record},
            target=record.get("expected_answer"),
            arguments={"gen_args_0": {"arg_0": record.get("problem")}},
            finish_reasons=[record.get("finish_reason")],
        )


def _read_field(record: dict[str, Any], name: str) -> Any:
    """Return a field's verdict on the generation, or None, or its unchanged value."""
    value = record[name]
    if name == "judgement":
        return _read_judgement(value) if isinstance(value, str) else None
    return value


def _read_judgement(text: str) -> bool | None:
    """Return the judge's answer, or None without one.

    As in NeMo-Skills, the first marker decides if yes or no follows it; then the other forms are
    tried. A marker without an answer counts as wrong.
    """
    marker = _MARKER.search(text)
    if marker and (word := re.match("yes|no", text[marker.end() :], re.IGNORECASE)):
        return word[0].lower() == "yes"
    if boxed := _BOXED.search(text):
        return boxed[1].lower() == "correct"
    if points := _POINTS.search(text):
        return int(points[1]) >= _MIN_POINTS
    words = {word.lower() for word in _BRACKETED.findall(text)}
    if words:
        return "correct" in words
    return False if marker else None


def _read_verdict(
    record: dict[str, Any], metric: str | None, place: str
) -> tuple[Verdict | None, str]:
    names = [metric] if metric else [name for name in _VERDICT_FIELDS if name in record]
    if not names:
        return None, ""
    if len(names) > 1:
        raise UserError(
            f"{place}: has several verdicts, {' and '.join(names)}, which may differ; choose "
            f"one: --metric {names[0]}"
        )
    (name,) = names
    value = record.get(name)
    if name != "judgement":
        return parse_verdict(value, name, place), name
    text = read_text_field(record, name, place)
    if (passed := _read_judgement(text)) is None:
        raise UserError(
            f"{place}: judgement is {text!r:.60}; expected 'Judgement: Yes' or another form "
            "of NeMo-Skills; name another field (--metric), or have the task's verifier judge "
            "(--judge)"
        )
    return create_verdict(passed), name
