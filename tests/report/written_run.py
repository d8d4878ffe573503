"""Write the tables of planted inputs, as the stages do."""

from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq

from gapft_harness.core.records import STATUSES
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import (
    example_schema,
    problem_schema,
    response_schema,
    state_schema,
)
from tests.kit.records import record_files


def build_response(problem_id, index, text, status):
    return {
        "problem_id": problem_id, "index": index, "text": text, "token_ids": [1],
        "finish_reason": "stop", "seed": 0, "tokens_from": "generator", "status": status,
        "reason": "", "attempts": [], "context_ids": [],
    }  # fmt: skip


def build_decode(problem_id, deployed, place):
    """Build the row of a problem's deployment decode."""
    return build_response(problem_id, -1, deployed.texts[place], STATUSES[deployed.statuses[place]])


def write_rows(path, rows, schema):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def build_example(problem_id, state, **changes):
    """Build a row of a selection."""
    row = {
        "problem_id": problem_id, "state": state, "response_index": 2, "first_success": 0,
        "prompt_ids": [1, 2], "response_ids": [3], "ended": True,
    }  # fmt: skip
    return {**row, **changes}


def write_selection(folder, trained, rows):
    """Write a training set."""
    path = folder / f"selections/{trained.arm.name}.parquet"
    write_rows(path, rows, example_schema())


def build_recipe(inputs, **changes):
    """Build a run's recipe for planted inputs."""
    return {
        "name": "planted",
        "data": {"task": inputs.task["name"]},
        "model": {"args": {"pretrained": "planted"}},
        "search": {"k": inputs.k},
        "conditions": list(inputs.conditions),
        "seeds": list(inputs.seeds),
        "experiments": dict(inputs.recipe.get("experiments", {})),
        "statistics": {"replicates": 200},
        **changes,
    }


def write_pool(folder, inputs):
    """Write the pool's problems and responses, of which all failed; return their number."""
    ids = [f"{state}{i}" for state, count in inputs.pool_states.items() for i in range(count)]
    problems = [
        {
            "problem_id": i, "prompt": f"pool {i}", "gold": "1", "document": "{}", "turns": "[]",
            "prompt_ids": [1],
        }
        for i in ids
    ]  # fmt: skip
    write_rows(folder / "pool/problems.parquet", problems, problem_schema())
    rows = [build_response(i, index, "", "fail") for i in ids for index in range(-1, inputs.k)]
    write_rows(folder / "pool/responses.parquet", rows, response_schema())
    return len(rows)


def write_run(folder, inputs, **changes):
    """Write planted inputs as a run directory, with a record of every output.

    Args:
        folder: the run directory.
        inputs: the planted inputs.
        changes: changes of ``build_recipe``.
    """
    recipe = check_recipe(build_recipe(inputs, **changes), "planted")
    run = RunDirectory.create_or_open(folder, recipe)
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
        write_rows(folder / f"states/{split}.parquet", rows, state_schema())
    for trained in inputs.arms:
        rows = [
            build_decode(problem_id, trained.deployed, place)
            for place, problem_id in enumerate(ids)
        ]
        write_rows(folder / f"decisions/{trained.arm.name}.parquet", rows, response_schema())
        chosen = [f"pool{slot % trained.problems}" for slot in range(trained.budget.n)]
        write_selection(folder, trained, [build_example(i, "S") for i in chosen])
    record_run(run, inputs, write_pool(folder, inputs))
    return run


def record_run(run, inputs, pool_responses):
    """Record the outputs of planted inputs, and the facts of their run."""
    searched = {"source": dict(inputs.source), "warnings": []}
    facts = {
        "pool": {**searched, "verdicts": {"fail": pool_responses}},
        "audit": searched,
        **{f"states/{s}.parquet": {"states": dict(inputs.pool_states)} for s in ("pool", "audit")},
    }
    for trained in inputs.arms:
        name = trained.arm.name
        (run.path / "budgets").mkdir(exist_ok=True)
        (run.path / f"budgets/{name}.json").write_text("{}")
        facts[f"selections/{name}.parquet"] = {"matched": trained.matched, "ends_unknown": 0}
        facts[f"budgets/{name}.json"] = asdict(trained.budget)
        facts[f"decisions/{name}.parquet"] = {"warnings": []}
    record_files(run, facts)
    stages = {
        name: {"seconds": seconds, "day": f"2026-11-{21 - (name == 'search')}"}
        for name, seconds in inputs.seconds.items()
    }
    stages["report"] = {"seconds": 3.0, "day": "2026-11-30"}
    run.update_facts(
        lambda recorded: recorded.update(
            task=dict(inputs.task),
            warnings={"search": list(inputs.warnings)},
            stages=stages,
            versions=dict(inputs.versions),
        )
    )
