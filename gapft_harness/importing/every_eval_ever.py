"""Read instance records of Every Eval Ever, schema 0.3.0: JSON lines, one per sample and result.

A result is one metric of one scorer; it is read like a filter of lm_eval, as one row. The converter
of Inspect's logs gives all epochs of a sample the same, reduced score; these are the responses of
one row, and its score does not show which of them passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import require_object
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.verdicts.log_files import Log
from gapft_harness.verdicts.sample_logs import LogRow, group_records, read_records


def read_every_eval_ever_task(path: Path) -> str:
    """Read the task of the first record, without the filter that lm_eval's converter appends."""
    for _, _, record, _ in read_records(path):
        metadata = record.get("metadata")
        filter_name = metadata.get("filter") if isinstance(metadata, dict) else None
        return str(record.get("evaluation_name", "")).removesuffix(f"/{filter_name}")
    return ""


def read_every_eval_ever_rows(log: Log) -> Iterator[LogRow]:
    """Yield a row for each sample and result, with the responses of all its epochs.

    Raises:
        UserError: a record is malformed; the message has file and line.
    """
    for repeats in group_records(
        log.path, lambda record, _: (record.get("sample_id"), _find_result_id(record))
    ):
        yield _build_row(log, repeats)


def _find_result_id(record: dict[str, Any]) -> str:
    return str(record.get("evaluation_result_id") or "none")


def _build_row(log: Log, repeats: list[tuple[int, dict[str, Any], str]]) -> LogRow:
    line, record, place = repeats[0]
    prompt_input = require_object(record.get("input"), f"{place}: input")
    scores = {_read_score(repeat, place) for _, repeat, place in repeats}
    if len(scores) > 1:
        raise UserError(
            f"{place}: {len(repeats)} records of sample {record.get('sample_id')} and one result "
            f"have the scores {', '.join(f'{score:g}' for score in sorted(scores))}; expected one "
            "score, because records do not identify the response of a score"
        )
    references = prompt_input.get("reference") or []
    return LogRow.of(
        *(log, line, {name: prompt_input.get(name) for name in ("raw", "reference", "choices")}),
        [text for _, repeat, place in repeats for text in _read_texts(repeat, place)],
        metrics={"score": scores.pop()},
        filter=_find_result_id(record),
        doc_id=record.get("sample_id"),
        target=references[0] if len(references) == 1 else references,
        arguments={
            "gen_args_0": {"arg_0": prompt_input.get("formatted") or prompt_input.get("raw")}
        },
    )


def _read_score(record: dict[str, Any], place: str) -> float:
    score = require_object(record.get("evaluation"), f"{place}: evaluation").get("score")
    if not isinstance(score, bool | int | float):
        raise UserError(f"{place}: evaluation.score is {score!r:.60}; expected a number")
    return score


def _read_texts(record: dict[str, Any], place: str) -> list[str]:
    """Read the responses; for a conversation, the assistant's last turn."""
    if (output := record.get("output")) is not None:
        texts = require_object(output, f"{place}: output").get("raw")
    else:
        turns = record.get("messages") or []
        answers = [turn.get("content") or "" for turn in turns if turn.get("role") == "assistant"]
        texts = answers[-1:]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{place}: output.raw is {texts!r:.60}; expected a list of texts")
    return [replace_text_surrogates(text) for text in texts]
