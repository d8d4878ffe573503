"""The tables of a run: their columns, readers and writers.

``SPLIT/problems.parquet`` has one row for each problem, ordered by id. ``SPLIT/responses.parquet``
and ``decisions/ARM.parquet`` contain responses with verdicts, ordered by problem id, then index;
index -1 is the deployment decode. Decisions have it alone or, for an experiment, samples alone.
``states/SPLIT.parquet`` contains the states, ``selections/ARM.parquet`` a training set.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import (
    STATUSES,
    Attempt,
    Example,
    Problem,
    Response,
    State,
    Status,
    Verdict,
)
from gapft_harness.run_directory.parquet import (
    Row,
    Values,
    read_rows,
    write_batches,
)

if TYPE_CHECKING:
    import pyarrow as pa


#: The prefix of the reason of a verdict that comes from a log, not from the verifier.
IMPORTED_PREFIX: Final = "the log's verdict"

#: Problems in memory at a time when reading: one gold may be megabytes of packed tests.
_PROBLEM_READ_BATCH = 64

#: Problems in memory at a time when writing.
_PROBLEM_WRITE_BATCH = 1000


def _build_schema(**columns: str) -> pa.Schema:
    """Build a schema from Arrow type names, ``ids`` (token ids) or ``attempts``."""
    import pyarrow as pa

    text = pa.string()
    ids = pa.list_(pa.int32())
    attempt = {
        "text": text, "token_ids": ids, "finish_reason": text, "feedback": text, "reasoning": text
    }  # fmt: skip
    nested_types = {"ids": ids, "attempts": pa.list_(pa.struct(attempt.items()))}
    return pa.schema(
        {
            name: nested_types.get(type_name) or pa.type_for_alias(type_name)
            for name, type_name in columns.items()
        }
    )


@functools.cache
def problem_schema() -> pa.Schema:
    """Return the schema of a table of problems.

    ``gold``, ``document`` and ``turns`` (the turns of a chat; empty without a chat template)
    contain JSON. ``prompt_ids`` are the token ids that the generator received.
    """
    texts = dict.fromkeys(("problem_id", "prompt", "gold", "document", "turns"), "string")
    return _build_schema(**texts, prompt_ids="ids")


def write_problems(
    path: Path,
    problems: Sequence[Problem],
    prompt_ids: Callable[[Sequence[str]], Iterator[tuple[int, ...]]],
) -> None:
    """Write a table of problems.

    Args:
        path: the table.
        problems: the problems, in any order.
        prompt_ids: returns the token ids of the prompts of the problems with the given ids.
    """
    ordered = sorted(problems, key=lambda problem: problem.id)

    def iterate_batches() -> Iterator[Iterator[Values]]:
        for start in range(0, len(ordered), _PROBLEM_WRITE_BATCH):
            members = ordered[start : start + _PROBLEM_WRITE_BATCH]
            yield (
                (p.id, p.prompt, *map(json.dumps, (p.gold, dict(p.document), p.turns)), ids)
                for p, ids in zip(members, prompt_ids([p.id for p in members]), strict=True)
            )

    write_batches(path, problem_schema(), iterate_batches())


def read_problems(path: Path) -> Iterator[tuple[Problem, tuple[int, ...]]]:
    """Yield problems and the prompt ids that the generator received, ordered by problem id.

    Args:
        path: a ``problems.parquet``.
    """
    for row in read_rows(path, batch_size=_PROBLEM_READ_BATCH):
        gold, document, turns = (json.loads(row[name]) for name in ("gold", "document", "turns"))
        problem = Problem(row["problem_id"], row["prompt"], gold, document, tuple(turns))
        yield problem, tuple(row["prompt_ids"])


#: The first columns of a table of responses: the fields of ``Response``, in order.
_RESPONSE_FIELDS = tuple(field.name for field in fields(Response))
_response_values = attrgetter(*_RESPONSE_FIELDS)


@dataclass(frozen=True, slots=True)
class JudgedResponse:
    """A response with its verdict.

    Attributes:
        answer: the answer that the verifier extracted; None if it extracted none.
    """

    response: Response
    verdict: Verdict
    answer: str | None = None


@functools.cache
def response_schema() -> pa.Schema:
    """Return the schema of a table of responses: ``records.Response``, its verdict, its answer.

    A ``finish_reason`` of ``context`` means not generated, since the prompt did not fit the model's
    context. ``attempts`` and ``context_ids`` are empty except for episodes of several attempts;
    ``reasoning`` is empty except where a server returns it apart from ``text``.
    ``answer`` is null if the verifier extracts none.
    """
    return _build_schema(
        problem_id="string",
        index="int32",
        text="string",
        token_ids="ids",
        finish_reason="string",
        seed="int64",
        tokens_from="string",
        attempts="attempts",
        context_ids="ids",
        reasoning="string",
        status="string",
        reason="string",
        answer="string",
    )


def build_response_row(response: Response, verdict: Verdict, answer: str | None = None) -> Values:
    """Build the row of a response with its verdict and answer."""
    values = _response_values(response)
    if response.attempts:
        attempts = [asdict(attempt) for attempt in response.attempts]
        values = tuple(attempts if value is response.attempts else value for value in values)
    return *values, verdict.status, verdict.reason, answer


def read_judged(path: Path) -> Iterator[tuple[str, list[JudgedResponse]]]:
    """Yield (problem id, its responses ordered by index), ordered by problem id.

    Args:
        path: a table of responses or of decisions.

    Raises:
        GapftError: a verdict in the table is not a valid status.
    """
    for problem_id, rows in groupby(read_rows(path), key=lambda row: row["problem_id"]):
        yield problem_id, [_parse_judged(row, path) for row in rows]


def require_same_problem(ids: Mapping[Path, str]) -> None:
    """Require that rows at one place of several tables are of the same problem.

    Args:
        ids: by table, the problem of its row.

    Raises:
        GapftError: the problems differ.
    """
    if len({*ids.values()}) > 1:
        found = ", ".join(f"{problem_id} in {path}" for path, problem_id in ids.items())
        raise GapftError(
            f"tables have different problems at the same place: {found}; expected the same "
            "problems in the same order"
        )


def parse_response(row: Row) -> Response:
    """Build the response of a row."""
    values = {name: row[name] for name in _RESPONSE_FIELDS}
    for name in ("token_ids", "context_ids"):
        values[name] = tuple(values[name])
    values["attempts"] = tuple(
        Attempt(**(attempt | {"token_ids": tuple(attempt["token_ids"])}))
        for attempt in values["attempts"]
    )
    return Response(**values)


def _parse_judged(row: Row, path: Path) -> JudgedResponse:
    status = parse_status(row["status"], path, f", problem {row['problem_id']}")
    return JudgedResponse(parse_response(row), Verdict(status, row["reason"]), row["answer"])


def parse_status(status: Any, path: Path, place: str = "") -> Status:
    """Check the status of a verdict read from a file of a run.

    Args:
        status: the value that was read.
        path: the file, for the message.
        place: the place in the file, for the message.

    Raises:
        GapftError: the value is not a valid status.
    """
    if status not in STATUSES:
        raise GapftError(
            f"{path}{place}: invalid verdict {status!r:.40}; expected one of "
            f"{', '.join(STATUSES)}. The file is damaged: restore it, or delete it, and the same "
            "command makes it again"
        )
    valid_status: Status = status
    return valid_status


#: States in memory at a time when writing.
_STATE_WRITE_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class ProblemState:
    """A problem's state and the sample counts that it follows from.

    Attributes:
        samples: how many samples were drawn.
        first_success: number of the first sample that passed, or None.
        kept_index: index of the evidence's response: of a deployment decode, a sample's number, or
            None for U.
    """

    problem_id: str
    state: State
    samples: int
    passing_samples: int
    first_success: int | None
    kept_index: int | None


_STATE_FIELDS = tuple(field.name for field in fields(ProblemState))


@functools.cache
def state_schema() -> pa.Schema:
    """Return the schema of a table of states: the fields of ``ProblemState``."""
    numbers = dict.fromkeys(_STATE_FIELDS[2:], "int32")
    return _build_schema(problem_id="string", state="string", **numbers)


def write_states(path: Path, states: Iterable[ProblemState]) -> None:
    """Write a table of states."""
    rows = map(attrgetter(*_STATE_FIELDS), states)
    batches = iter(lambda: list(islice(rows, _STATE_WRITE_BATCH)), [])
    write_batches(path, state_schema(), batches)


def read_states(path: Path) -> Iterator[ProblemState]:
    """Yield a split's states, ordered by problem id.

    Args:
        path: a table of states.
    """
    for row in read_rows(path):
        yield ProblemState(**{name: row[name] for name in _STATE_FIELDS})


@functools.cache
def example_schema() -> pa.Schema:
    """Return the schema of a training set: the fields of ``records.Example``."""
    return _build_schema(
        problem_id="string",
        state="string",
        response_index="int32",
        first_success="int32",
        prompt_ids="ids",
        response_ids="ids",
        ended="bool",
        origin="string",
    )


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write a training set."""
    schema = example_schema()
    write_batches(path, schema, [map(attrgetter(*schema.names), examples)])


def read_examples(path: Path) -> list[Example]:
    """Read a selection, in the selector's order.

    Args:
        path: its table.
    """
    return [
        Example(
            **row
            | {"prompt_ids": tuple(row["prompt_ids"]), "response_ids": tuple(row["response_ids"])}
        )
        for row in read_rows(path)
    ]
