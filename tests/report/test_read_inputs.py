"""Reading a run's tables: their content, and errors for contradictions."""

import json
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.experiments.allocation import AllocationPart
from gapft_harness.report.reading.inputs import STATUSES, read_inputs
from gapft_harness.run_directory.parquet import FACTS
from gapft_harness.run_directory.tables import (
    example_schema,
    problem_schema,
    response_schema,
    state_schema,
)
from tests.report import planted


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
    exposures, arms = (
        inputs.find_part_data("allocation"),
        {exposed.arm.name: exposed for exposed in inputs.arms},
    )
    for exposed in exposures.seeds:
        in_a, in_b = (exposed.ids[exposed.halves == half].tolist() for half in "AB")
        replay = [
            build_example(f"solved{i}", "G", response_index=-1) for i in range(exposed.replay)
        ]
        for name, chosen, statuses in (
            (exposures.diffuse, [*in_a, *in_b], exposed.diffuse),
            (exposures.concentrated, in_a * 2, exposed.concentrated),
        ):
            rows = [*(build_example(i, "S") for i in chosen), *replay]
            write_selection(folder, arms[f"{name}-seed{exposed.seed}"], rows)
            decisions = [
                build_response(i, -1, "", STATUSES[code])
                for i, code in zip(exposed.ids.tolist(), statuses, strict=True)
            ]
            path = folder / f"decisions/{name}-seed{exposed.seed}.exposed.parquet"
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


PARTS = [AllocationPart()]


@pytest.fixture
def inputs():
    return planted.build_inputs(sizes=(12, 9, 8), pool_states=(5, 134, 3))


def test_reads_what_was_written(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    inputs_read, expected = read_inputs(tmp_path, json.loads(json.dumps(manifest))), inputs
    assert (inputs_read.k, inputs_read.conditions, inputs_read.seeds) == (
        8,
        expected.conditions,
        expected.seeds,
    )
    assert inputs_read.pool_states == {"G": 5, "S": 134, "U": 3}
    for name in ("ids", "states", "samples"):
        assert (getattr(inputs_read.audit, name) == getattr(expected.audit, name)).all()
    models = zip(
        (inputs_read.audit, *inputs_read.arms), (expected.audit, *expected.arms), strict=True
    )
    for model, expected_model in models:
        assert (model.deployed.statuses == expected_model.deployed.statuses).all()
        assert model.deployed.texts == expected_model.deployed.texts
    assert inputs_read.audit.prompts == expected.audit.prompts
    assert inputs_read.audit.golds == expected.audit.golds
    for arm, expected_arm in zip(inputs_read.arms, expected.arms, strict=True):
        assert (arm.arm, arm.budget, arm.matched) == (
            expected_arm.arm,
            expected_arm.budget,
            expected_arm.matched,
        )
        assert arm.problems == expected_arm.problems
    assert inputs_read.warnings == expected.warnings
    assert inputs_read.seconds == expected.seconds  # without this stage's own
    assert inputs_read.days == ("2026-11-20", "2026-11-21")


@pytest.mark.parametrize("key", ["n", "repetitions", "exposures", "steps"])
def test_rejects_budget_that_differs_from_training_set(inputs, tmp_path, key):
    manifest = json.loads(json.dumps(write_run(tmp_path, inputs)))
    manifest["budgets"]["all_verified-seed21"][key] += 1
    with pytest.raises(GapftError, match=rf"all_verified-seed21 has {key} = "):
        read_inputs(tmp_path, manifest)


def test_rejects_false_matched_flag_in_manifest(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    manifest["budgets"]["all_verified-seed21"]["matched"] = True
    with pytest.raises(GapftError, match=r"all_verified-seed21 .* matched, .* 295 .* 134\."):
        read_inputs(tmp_path, manifest)


def test_group_slots_are_condition_size_plus_replay(inputs, tmp_path):
    recipe = {**inputs.recipe, "budget": {"n": 130, "replay": 4}}
    own = {**dict.fromkeys(inputs.conditions), "all_verified": {"n": 291}}
    arms = tuple(replace(arm, matched=True) for arm in inputs.arms)
    inputs = replace(inputs, recipe={**recipe, "conditions": own}, arms=arms)
    assert all(arm.matched for arm in read_inputs(tmp_path, write_run(tmp_path, inputs)).arms)


def test_rejects_training_set_of_wrong_size(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    write_selection(tmp_path, inputs.arms[0], [build_example("x", "S")])
    with pytest.raises(GapftError, match=r"has 1 slots, .* n = 134"):
        read_inputs(tmp_path, manifest)


def test_run_without_budgets_has_no_arms(inputs, tmp_path):
    manifest = {**write_run(tmp_path, inputs), "budgets": {}}
    inputs_read = read_inputs(tmp_path, manifest)
    assert (inputs_read.conditions, inputs_read.arms) == ((), ())


def test_rejects_states_that_contradict_verdicts(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    ids = np.sort(inputs.audit.ids).tolist()
    rows = [{"problem_id": i, "state": "G", "passing_samples": 0} for i in ids]
    write_rows(tmp_path / "audit/states.parquet", rows, state_schema())
    with pytest.raises(GapftError, match="states do not follow from the verdicts"):
        read_inputs(tmp_path, manifest)


def test_seed_order_in_recipe_does_not_matter(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    manifest["recipe"]["seeds"] = manifest["recipe"]["seeds"][::-1]
    inputs_read = read_inputs(tmp_path, manifest)
    assert (inputs_read.seeds, [trained.arm for trained in inputs_read.arms]) == (
        inputs.seeds,
        [trained.arm for trained in inputs.arms],
    )


def test_rejects_problems_not_ordered_by_id(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    path = tmp_path / "audit/problems.parquet"
    pq.write_table(pq.read_table(path).take([1, 0, *range(2, len(inputs.audit.ids))]), path)
    with pytest.raises(GapftError, match="the problems are not ordered by their ids"):
        read_inputs(tmp_path, manifest)


def test_rejects_decisions_on_other_problems(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    path = tmp_path / f"decisions/{inputs.arms[0].arm.name}.parquet"
    write_rows(path, [build_response("elsewhere", -1, "", "pass")], response_schema())
    with pytest.raises(GapftError, match="other problems than the audit"):
        read_inputs(tmp_path, manifest)


def test_rejects_different_number_of_samples(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    manifest["recipe"] = {**manifest["recipe"], "search": {"k": 4, "seed": 0}}
    with pytest.raises(GapftError, match="different problems or a different order"):
        read_inputs(tmp_path, manifest)


@pytest.fixture
def allocation_inputs():
    return planted.build_allocation_inputs(sizes=(12, 9, 8))


def test_reads_halves_from_selections_and_decisions(allocation_inputs, tmp_path):
    manifest = write_run(tmp_path, allocation_inputs)
    exposures = read_inputs(tmp_path, json.loads(json.dumps(manifest)), PARTS).find_part_data(
        "allocation"
    )
    expected = allocation_inputs.find_part_data("allocation")
    assert (exposures.diffuse, exposures.concentrated) == ("diffuse", "concentrated")
    for seed, expected_seed in zip(exposures.seeds, expected.seeds, strict=True):
        assert (seed.seed, seed.replay) == (expected_seed.seed, expected_seed.replay)
        for name in ("ids", "halves", "diffuse", "concentrated"):
            assert (getattr(seed, name) == getattr(expected_seed, name)).all()


def test_reads_no_halves_without_allocation_key(allocation_inputs, tmp_path):
    manifest = write_run(tmp_path, replace(allocation_inputs, parts=()))
    manifest["recipe"]["experiments"] = {}
    assert read_inputs(tmp_path, manifest, PARTS).find_part_data("allocation") is None


def test_rejects_exposed_decisions_on_other_problems(allocation_inputs, tmp_path):
    manifest = write_run(tmp_path, allocation_inputs)
    path = tmp_path / "decisions/concentrated-seed21.exposed.parquet"
    write_rows(path, [build_response("elsewhere", -1, "", "pass")], response_schema())
    with pytest.raises(GapftError, match=r"concentrated-seed21\.exposed.*other problems than the"):
        read_inputs(tmp_path, manifest, PARTS)


def test_rejects_selections_that_do_not_form_halves(allocation_inputs, tmp_path):
    manifest = write_run(tmp_path, allocation_inputs)
    in_a = (
        allocation_inputs.find_part_data("allocation")
        .seeds[0]
        .ids[allocation_inputs.find_part_data("allocation").seeds[0].halves == "A"]
        .tolist()
    )
    others = [f"z{i}" for i in range(134 - len(in_a))]
    arm = next(
        trained for trained in allocation_inputs.arms if trained.arm.name == "concentrated-seed13"
    )
    write_selection(tmp_path, arm, [build_example(i, "S") for i in (*in_a, *others)])
    with pytest.raises(UserError, match=r"diffuse-seed13 and concentrated-seed13.* 1 and 1 times"):
        read_inputs(tmp_path, manifest, PARTS)
