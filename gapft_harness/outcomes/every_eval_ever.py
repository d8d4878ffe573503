"""Read instance records of Every Eval Ever, schema 0.3.0: JSON lines, one per sample and result.

A result is one metric of one scorer; it is read like a filter of lm_eval. The converter of
Inspect's logs gives all epochs of a sample the same, reduced score: a rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import read_objects, require_object
from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.outcomes.samples import Sample, name_score


def find_every_eval_ever_task(path: Path) -> str:
    """Return the task of the first record, without the filter that lm_eval's converter appends."""
    _, record, _ = next(read_objects(path))
    metadata = record.get("metadata")
    filter_name = metadata.get("filter") if isinstance(metadata, dict) else None
    return str(record.get("evaluation_name", "")).removesuffix(f"/{filter_name}")


def read_every_eval_ever(path: Path) -> Iterator[Sample]:
    """Yield the responses of each record.

    Raises:
        UserError: a record is malformed, or the epochs of a sample have different scores; the
            message has file and line.
    """
    scores: dict[tuple[str, str], float] = {}
    drawn: Counter[tuple[str, str]] = Counter()
    for line, record, place in read_objects(path):
        result = str(record.get("evaluation_result_id") or "none")
        key = str(record.get("sample_id")), result
        score = _read_score(record, place)
        if scores.setdefault(key, score) != score:
            raise UserError(
                f"{place}: the records of sample {key[0]} and one result have the scores "
                f"{scores[key]:g} and {score:g}; expected one score, because records do not "
                "identify the response of a score"
            )
        prompt_input = require_object(record.get("input"), f"{place}: input")
        references = prompt_input.get("reference") or []
        for text in _read_texts(record, place):
            yield Sample(
                problem={name: prompt_input.get(name) for name in ("raw", "reference", "choices")},
                index=drawn[key],
                scores={name_score("score", result): score},
                text=text,
                gold=references[0] if len(references) == 1 else references,
                prompt=prompt_input.get("formatted") or prompt_input.get("raw") or "",
                line=line,
                number=record.get("sample_id"),
            )
            drawn[key] += 1


def _read_score(record: Mapping[str, Any], place: str) -> float:
    score = require_object(record.get("evaluation"), f"{place}: evaluation").get("score")
    if not isinstance(score, bool | int | float):
        raise UserError(f"{place}: evaluation.score is {score!r:.60}; expected a number")
    return score


def _read_texts(record: Mapping[str, Any], place: str) -> list[str]:
    """Read the responses; of a conversation, the assistant's last turn."""
    if (output := record.get("output")) is not None:
        texts = require_object(output, f"{place}: output").get("raw")
    else:
        turns = record.get("messages") or []
        answers = [turn.get("content") or "" for turn in turns if turn.get("role") == "assistant"]
        texts = answers[-1:]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{place}: output.raw is {texts!r:.60}; expected a list of texts")
    return [replace_text_surrogates(text) for text in texts]
