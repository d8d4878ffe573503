"""Write the tables of planted inputs, as the stages do."""

import json
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq

from gapft_harness.report.reading.inputs import STATUSES
from gapft_harness.run_directory.parquet import FACTS
from gapft_harness.run_directory.tables import (
    example_schema,
    problem_schema,
    response_schema,
    state_schema,
)


def build_response(problem_id, index, text, status):
    return {
        "problem_id": problem_id, "index": index, "text": text, "token_ids": [1],
        "finish_reason": "stop", "seed": 0, "tokens_from": "generator", "status": status,
        "reason": "", "attempts": [], "context_ids": [],
    }  # fmt: skip


def build_decode(problem_id, deployed, place):
    """Build the row of a problem's deployment decode."""
    return build_response(problem_id, -1, deployed.texts[place], STATUSES[deployed.statuses[place]])


def write_rows(path, rows, schema, facts=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {} if facts is None else {FACTS: json.dumps(facts)}
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.with_metadata(metadata)), path)


def build_example(problem_id, state, **changes):
    """Build a row of a selection."""
    row = {
        "problem_id": problem_id, "state": state, "response_index": 2, "first_success": 0,
        "prompt_ids": [1, 2], "response_ids": [3], "ended": True,
    }  # fmt: skip
    return {**row, **changes}


def write_selection(folder, trained, rows):
    """Write a training set with its budget."""
    path = folder / f"selections/{trained.arm.name}.parquet"
    write_rows(path, rows, example_schema(), asdict(trained.budget))


def write_exposures(folder, inputs):
    """Write selections and decisions of the two compared conditions, as the stages do."""
    problems = inputs.find_part_data("allocation").problems
    for trained in inputs.arms:
        condition = trained.arm.condition
        exposed = [problem for problem in problems if problem.seed == trained.arm.seed]
        rows = [
            build_example(problem.problem_id, "S")
            for problem in exposed
            for _ in range(getattr(problem, f"selected_{condition}"))
        ]
        replay = range(trained.budget.n - len(exposed))
        rows += [build_example(f"solved{i}", "G", response_index=-1) for i in replay]
        write_selection(folder, trained, rows)
        decisions = [
            build_response(problem.problem_id, -1, "", getattr(problem, f"verdict_{condition}"))
            for problem in exposed
        ]
        path = folder / f"decisions/{trained.arm.name}.exposed.parquet"
        write_rows(path, decisions, response_schema())


def write_run(folder, inputs):
    """Write the tables of planted inputs and return their manifest."""
    audit = inputs.audit
    ids = audit.ids.tolist()
    problems = [
        {
            "problem_id": i,
            "prompt": p,
            "gold": g,
            "document": "{}",
            "turns": "[]",
            "prompt_ids": [1, 2],
        }
        for i, p, g in zip(ids, audit.prompts, audit.golds, strict=True)
    ]
    write_rows(folder / "audit/problems.parquet", problems, problem_schema())
    responses = []
    for place, problem_id in enumerate(ids):
        responses.append(build_decode(problem_id, audit.deployed, place))
        responses += [
            build_response(problem_id, number, f"sample {number}", STATUSES[code])
            for number, code in enumerate(audit.samples[place])
        ]
    write_rows(folder / "audit/responses.parquet", responses, response_schema())
    for split, states in (
        ("audit", list(zip(ids, audit.states.tolist(), strict=True))),
        ("pool", [(f"{s}{i}", s) for s, n in inputs.pool_states.items() for i in range(n)]),
    ):
        rows = [
            {
                "problem_id": i, "state": s, "passing_samples": 0,
                "first_success": 0 if s == "S" else None,
            }
            for i, s in states
        ]  # fmt: skip
        write_rows(folder / split / "states.parquet", rows, state_schema())
    for trained in inputs.arms:
        rows = [
            build_decode(problem_id, trained.deployed, place)
            for place, problem_id in enumerate(ids)
        ]
        write_rows(folder / f"decisions/{trained.arm.name}.parquet", rows, response_schema())
        chosen = [f"pool{slot % trained.problems}" for slot in range(trained.budget.n)]
        write_selection(folder, trained, [build_example(i, "S") for i in chosen])
    if inputs.find_part_data("allocation") is not None:
        write_exposures(folder, inputs)
    return {
        "recipe": dict(inputs.recipe),
        "task": dict(inputs.task),
        "source": dict(inputs.source),
        "verdict_counts": dict(inputs.verdict_counts),
        "judged_by": dict(inputs.judged_by),
        "executions": {},
        "training": dict(inputs.training),
        "warnings": list(inputs.warnings),
        "stages": {
            **{
                name: {"seconds": s, "day": f"2026-11-{21 - (name == 'search')}"}
                for name, s in inputs.seconds.items()
            },
            "report": {"seconds": 3.0, "day": "2026-11-30"},
        },
        "versions": dict(inputs.versions),
        "budgets": {
            t.arm.name: {
                "n": t.budget.n, "repetitions": 8, "exposures": t.budget.exposures,
                "tokens": t.budget.tokens, "supervised_tokens": t.budget.supervised_tokens,
                "steps": t.budget.steps, "matched": t.matched,
            }
            for t in inputs.arms
        },
    }  # fmt: skip
