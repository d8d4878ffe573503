"""The columns of every sealed table of a run directory (Parquet)."""

from __future__ import annotations

import pyarrow as pa

_ids = pa.list_(pa.int32())

#: {pool,audit}/problems.parquet: one row a problem, ordered by id.
#: ``gold`` and ``document`` hold JSON; ``prompt_ids`` are those the generator saw.
PROBLEMS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("prompt", pa.string()),
        ("gold", pa.string()),
        ("document", pa.string()),
        ("prompt_ids", _ids),
    ]
)

#: {pool,audit}/responses.parquet: ordered by problem id, then index (-1 is the greedy decode).
#: ``finish_reason`` ``context``: not generated, as the prompt did not fit the model.
#: ``attempts`` and ``context_ids`` are empty but for episodes of more than one attempt.
RESPONSES = pa.schema(
    [
        ("problem_id", pa.string()),
        ("index", pa.int32()),
        ("text", pa.string()),
        ("token_ids", _ids),
        ("finish_reason", pa.string()),
        ("seed", pa.int64()),
        ("tokens_from", pa.string()),
        (
            "attempts",
            pa.list_(
                pa.struct(
                    [
                        ("text", pa.string()),
                        ("token_ids", _ids),
                        ("finish_reason", pa.string()),
                        ("feedback", pa.string()),
                    ]
                )
            ),
        ),
        ("context_ids", _ids),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)

#: {pool,audit}/states.parquet: one row a problem, ordered by id. ``first_success`` is a sample
#: number or null; ``kept_index`` the evidence's response index, null for U. ``samples`` were drawn:
#: K, or fewer of a solved problem where search stopped early.
STATES = pa.schema(
    [
        ("problem_id", pa.string()),
        ("state", pa.string()),
        ("samples", pa.int32()),
        ("passing_samples", pa.int32()),
        ("first_success", pa.int32()),
        ("kept_index", pa.int32()),
    ]
)

#: selections/CONDITION-seedS.parquet: the training set in the selector's order.
SELECTION = pa.schema(
    [
        ("problem_id", pa.string()),
        ("state", pa.string()),
        ("response_index", pa.int32()),
        ("first_success", pa.int32()),
        ("prompt_ids", _ids),
        ("response_ids", _ids),
        ("ended", pa.bool_()),
    ]
)

#: decisions/CONDITION-seedS.parquet: one greedy decode an audit problem, ordered by id.
DECISIONS = RESPONSES
