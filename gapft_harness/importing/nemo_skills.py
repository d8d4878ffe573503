"""Output of NeMo-Skills: ``output.jsonl`` and ``output-rsSEED.jsonl``, a generation a line.

A line is the problem's own record with what was generated and judged beside it. Field names are
those of NeMo-Skills' own code in October 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Verdict
from gapft_harness.importing.rows import ImportChoice, ImportedResponse, taken, text_of, verdict_of
from gapft_harness.verdicts.places import Log
from gapft_harness.verdicts.sample_logs import LogRow, records

#: The fields by which its evaluators say whether a generation is right.
_TELLING = ("symbolic_correct", "is_correct", "judgement")
#: What its judges' answers come behind, in plain text or bold.
_MARKER = re.compile(r"\*{0,2}judgement\*{0,2}\s*:\s*\*{0,2}\s*", re.IGNORECASE)
#: The fields of a record that are its problem's; others are of the generation.
_PROBLEM = ("problem", "expected_answer")
#: What tells its problems apart: the field ``problem``, in its records and in the task's.
ON = (("problem", "problem"),)


def read_nemo_skills(path: Path, choice: ImportChoice, greedy: bool) -> Iterator[ImportedResponse]:
    """Yields the responses of a file, each the first of its problem.

    Raises:
        UserError: a line is malformed, or does not tell whether it passed; it names file and line.
    """
    for line, _, record, place in records(path):
        verdict, by = (None, "") if choice.judge else _verdict(record, choice.metric, place)
        finish = record.get("finish_reason")
        yield ImportedResponse(
            line,
            place,
            ("doc", record),
            GREEDY if greedy else 0,
            text_of(record, "generation", place),
            verdict,
            by,
            finish if finish in ("stop", "length") else "unknown",
            {"field": by},
        )


def nemo_skills_rows(log: Log) -> Iterator[LogRow]:
    """Yields a row for each line; its metrics are the fields that say whether it is right.

    A field that does not say it, such as a judgement that was cut short, is no number: that is an
    error where this field is asked for, and of no account where another is.

    Raises:
        UserError: a line is no JSON object, or has no generation.
    """
    for line, _, record, place in records(log.path):
        document = {name: record[name] for name in _PROBLEM if name in record}
        yield LogRow.of(
            *(log, line, document or record, [text_of(record, "generation", place)]),
            metrics={name: _read_field(record, name) for name in _TELLING if name in record},
            target=record.get("expected_answer"),
            arguments={"gen_args_0": {"arg_0": record.get("problem")}},
        )


def _read_field(record: dict[str, Any], name: str) -> Any:
    """Return what a field says of the generation: whether it is right, or None or its value."""
    value = record[name]
    if name == "judgement":
        return _read_judgement(value) if isinstance(value, str) else None
    return value


def _read_judgement(text: str) -> bool | None:
    """Return what a judge answered behind its marker; None: it did not. All but yes is no."""
    said = _MARKER.split(text)
    return said[-1].lower().startswith("yes") if len(said) > 1 else None


def _verdict(record: dict[str, Any], metric: str | None, place: str) -> tuple[Verdict | None, str]:
    telling = [metric] if metric else [name for name in _TELLING if name in record]
    if not telling:
        return None, ""
    if len(telling) > 1:
        raise UserError(
            f"{place}: has {' and '.join(telling)}, which need not agree; say which is the "
            f"verdict: --metric {telling[0]}"
        )
    (name,) = telling
    value = record.get(name)
    if name != "judgement":
        return verdict_of(value, name, place), name
    text = text_of(record, name, place)
    if (passed := _read_judgement(text)) is None:
        raise UserError(
            f"{place}: judgement is {text!r:.60}; expected 'Judgement:' in it, with Yes or No "
            "behind; name another field (--metric), or have the task's verifier judge (--judge)"
        )
    return taken(passed), name
