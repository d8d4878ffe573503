"""Reading the sealed tables of a run back into records (columns: ``schemas.py``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import (
    STATUSES,
    Attempt,
    Evidence,
    Example,
    Problem,
    Response,
    Status,
    Verdict,
)

#: Problems in memory at a time: one gold may be megabytes of packed tests.
_PROBLEMS = 64


@dataclass(frozen=True, slots=True)
class Judged:
    """A response with its verdict."""

    response: Response
    verdict: Verdict


def read_problems(path: Path) -> Iterator[tuple[Problem, tuple[int, ...]]]:
    """Yields problems and the prompt ids the generator saw, ordered by problem id."""
    for row in _rows(path, _PROBLEMS):
        yield (
            Problem(
                row["problem_id"],
                row["prompt"],
                json.loads(row["gold"]),
                json.loads(row["document"]),
            ),
            tuple(row["prompt_ids"]),
        )


def sealed_status(status: Any, path: Path, where: str = "") -> Status:
    """A verdict's status as a file of a run holds it.

    Raises:
        GapftError: it is none; the message names the file and what was found.
    """
    if status not in STATUSES:
        raise GapftError(
            f"{path}{where}: holds the verdict {status!r:.40}; expected one of "
            f"{', '.join(STATUSES)}. Its verifier gave what is no verdict, so no number can be "
            "told: mend the verifier, and search again in a new run directory"
        )
    known: Status = status
    return known


def read_ids(path: Path) -> Iterator[str]:
    """Yields the ids of the problems that a table's rows are of, one for neighbours of one id."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        ids = (
            problem_id
            for batch in file.iter_batches(columns=["problem_id"])
            for problem_id in batch.column("problem_id").to_pylist()
        )
        for problem_id, _ in groupby(ids):
            yield problem_id


def read_prompts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the ids and prompts of a split's problems, without golds and records."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["problem_id", "prompt"]):
            yield from zip(*(batch.column(n).to_pylist() for n in (0, 1)), strict=True)


def read_judged(path: Path) -> Iterator[tuple[str, list[Judged]]]:
    """Yields (problem id, its responses ordered by index), ordered by problem id."""
    for problem_id, rows in groupby(_rows(path), key=lambda row: row["problem_id"]):
        yield (
            problem_id,
            [
                Judged(
                    Response(
                        row["problem_id"],
                        row["index"],
                        row["text"],
                        tuple(row["token_ids"]),
                        row["finish_reason"],
                        row["seed"],
                        row["tokens_from"],
                        tuple(_attempt(attempt) for attempt in row["attempts"]),
                        tuple(row["context_ids"]),
                    ),
                    Verdict(
                        sealed_status(row["status"], path, f", problem {problem_id}"),
                        row["reason"],
                    ),
                )
                for row in rows
            ],
        )


def read_evidence(
    folder: Path,
    context: Literal["conversation", "problem"] = "conversation",
    max_gen_toks: int | None = None,
) -> list[Evidence]:
    """Joins a split's problems, responses and states into evidence, ordered by problem id.

    Args:
        folder: the split's.
        context: what the final attempt of an episode follows: the conversation that it answered,
            or the problem's prompt alone.
        max_gen_toks: the length limit that the split was generated under; see ``Evidence.ended``.
    """
    evidence = []
    rows = zip(
        read_problems(folder / "problems.parquet"),
        read_judged(folder / "responses.parquet"),
        read_states(folder / "states.parquet"),
        strict=True,
    )
    for (problem, prompt_ids), (_, judged), state in rows:
        kept = [j.response for j in judged if j.response.index == state["kept_index"]]
        if context == "conversation" and kept and kept[0].context_ids:
            prompt_ids = kept[0].context_ids
        evidence.append(
            Evidence(
                problem.id,
                state["state"],
                kept[0] if kept else None,
                prompt_ids,
                state["passing_samples"],
                state["first_success"],
                problem.document,
                problem.gold,
                state["samples"],
                max_gen_toks,
            )
        )
    return evidence


def read_states(path: Path) -> Iterator[dict[str, Any]]:
    """Yields a split's states as rows (``schemas.STATES``), ordered by problem id."""
    return _rows(path)


def read_examples(path: Path) -> list[Example]:
    """Reads a sealed selection, in the selector's order."""
    return [
        Example(
            row["problem_id"],
            row["state"],
            tuple(row["prompt_ids"]),
            tuple(row["response_ids"]),
            row["response_index"],
            row["first_success"],
            row["ended"],
        )
        for row in _rows(path)
    ]


def _attempt(row: dict[str, Any]) -> Attempt:
    return Attempt(row["text"], tuple(row["token_ids"]), row["finish_reason"], row["feedback"])


def _rows(path: Path, at_once: int = 4096) -> Iterator[dict[str, Any]]:
    """Yields a table's rows as dicts, a batch in memory at a time."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=at_once):
            yield from batch.to_pylist()
