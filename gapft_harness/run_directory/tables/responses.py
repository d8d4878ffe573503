"""``SPLIT/responses.parquet`` and ``decisions/ARM.parquet``: responses with their verdicts.

Ordered by problem id, then index; -1 is the greedy decode, and decisions hold no other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import STATUSES, Attempt, Response, Status, Verdict
from gapft_harness.run_directory.tables.parquet import Row, Values, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

#: The first columns: a response's own fields, in their order.
_RESPONSE = tuple(field.name for field in fields(Response))
_values = attrgetter(*_RESPONSE)


@dataclass(frozen=True, slots=True)
class Judged:
    """A response with its verdict.

    Attributes:
        response: of its problem.
        verdict: on it.
        answer: what the verifier read as its answer; None where it read none or gives none.
    """

    response: Response
    verdict: Verdict
    answer: str | None = None


@functools.cache
def schema() -> pa.Schema:
    """The columns: those of ``records.Response``, of its verdict, and its answer.

    ``finish_reason`` ``context``: not generated, as the prompt did not fit the model. ``attempts``
    and ``context_ids`` are empty but for episodes of more than one attempt. ``answer`` is null
    where the verifier gives none.
    """
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    attempt = pa.struct(
        [
            ("text", pa.string()),
            ("token_ids", ids),
            ("finish_reason", pa.string()),
            ("feedback", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("problem_id", pa.string()),
            ("index", pa.int32()),
            ("text", pa.string()),
            ("token_ids", ids),
            ("finish_reason", pa.string()),
            ("seed", pa.int64()),
            ("tokens_from", pa.string()),
            ("attempts", pa.list_(attempt)),
            ("context_ids", ids),
            ("status", pa.string()),
            ("reason", pa.string()),
            ("answer", pa.string()),
        ]
    )


def row_of(response: Response, verdict: Verdict, answer: str | None = None) -> Values:
    """A response with its verdict and answer as a row."""
    values = _values(response)
    if response.attempts:
        attempts = [asdict(attempt) for attempt in response.attempts]
        values = tuple(attempts if value is response.attempts else value for value in values)
    return *values, verdict.status, verdict.reason, answer


def read_judged(path: Path) -> Iterator[tuple[str, list[Judged]]]:
    """Yields (problem id, its responses ordered by index), ordered by problem id.

    Raises:
        GapftError: the table holds a verdict that is none.
    """
    for problem_id, rows in groupby(read_rows(path), key=lambda row: row["problem_id"]):
        yield problem_id, [_judged(row, path) for row in rows]


def response_of(row: Row) -> Response:
    """The response that a row holds."""
    found = {name: row[name] for name in _RESPONSE}
    for name in ("token_ids", "context_ids"):
        found[name] = tuple(found[name])
    found["attempts"] = tuple(
        Attempt(**(attempt | {"token_ids": tuple(attempt["token_ids"])}))
        for attempt in found["attempts"]
    )
    return Response(**found)


def _judged(row: Row, path: Path) -> Judged:
    status = sealed_status(row["status"], path, f", problem {row['problem_id']}")
    return Judged(response_of(row), Verdict(status, row["reason"]), row["answer"])


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
