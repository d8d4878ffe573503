"""Reading a run's sealed tables: what is written there, and contradictions as errors."""

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


def response(problem_id, index, text, status):
    return {
        "problem_id": problem_id, "index": index, "text": text, "token_ids": [1],
        "finish_reason": "stop", "seed": 0, "tokens_from": "generator", "status": status,
        "reason": "", "attempts": [], "context_ids": [],
    }  # fmt: skip


def write(path, rows, schema, facts=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {} if facts is None else {FACTS: json.dumps(facts)}
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.with_metadata(said)), path)


def selected(problem_id, state, **changes):
    """A line of a selection."""
    row = {
        "problem_id": problem_id, "state": state, "response_index": 2, "first_success": 0,
        "prompt_ids": [1, 2], "response_ids": [3], "ended": True,
    }  # fmt: skip
    return {**row, **changes}


def write_selection(folder, trained, rows):
    """A training set, sealed with its budget."""
    path = folder / f"selections/{trained.arm.name}.parquet"
    write(path, rows, example_schema(), asdict(trained.budget))


def write_exposures(folder, inputs):
    """Selections and decisions of the two compared conditions, as the stages seal them."""
    exposures, arms = inputs.find_part_data("allocation"), {of.arm.name: of for of in inputs.arms}
    for of in exposures.seeds:
        in_a, in_b = (of.ids[of.halves == half].tolist() for half in "AB")
        replay = [selected(f"solved{i}", "G", response_index=-1) for i in range(of.replay)]
        for name, chosen, statuses in (
            (exposures.diffuse, [*in_a, *in_b], of.diffuse),
            (exposures.concentrated, in_a * 2, of.concentrated),
        ):
            rows = [*(selected(i, "S") for i in chosen), *replay]
            write_selection(folder, arms[f"{name}-seed{of.seed}"], rows)
            decisions = [
                response(i, -1, "", STATUSES[code])
                for i, code in zip(of.ids.tolist(), statuses, strict=True)
            ]
            path = folder / f"decisions/{name}-seed{of.seed}.exposed.parquet"
            write(path, decisions, response_schema())


def write_run(folder, inputs):
    """The sealed tables of the planted inputs, and their manifest."""
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
    write(folder / "audit/problems.parquet", problems, problem_schema())
    responses = []
    for place, problem_id in enumerate(ids):
        codes = [audit.greedy[place], *audit.samples[place]]
        for number, code in enumerate(codes):
            text = audit.greedy_texts[place] if number == 0 else f"sample {number}"
            responses.append(response(problem_id, number - 1, text, STATUSES[code]))
    write(folder / "audit/responses.parquet", responses, response_schema())
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
        write(folder / split / "states.parquet", rows, state_schema())
    for trained in inputs.arms:
        rows = [
            response(i, -1, t, STATUSES[code])
            for i, t, code in zip(ids, trained.texts, trained.statuses, strict=True)
        ]
        write(folder / f"decisions/{trained.arm.name}.parquet", rows, response_schema())
        chosen = [f"pool{slot % trained.problems}" for slot in range(trained.budget.n)]
        write_selection(folder, trained, [selected(i, "S") for i in chosen])
    if inputs.find_part_data("allocation") is not None:
        write_exposures(folder, inputs)
    return {
        "recipe": dict(inputs.recipe),
        "task": dict(inputs.task),
        "source": dict(inputs.source),
        "verdict_counts": dict(inputs.verdict_counts),
        "drawn": dict(inputs.drawn),
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
    return planted.inputs(sizes=(12, 9, 8), pool_states=(5, 134, 3))


def test_what_was_sealed_is_what_is_read(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    found, expected = read_inputs(tmp_path, json.loads(json.dumps(manifest))), inputs
    assert (found.k, found.conditions, found.seeds) == (8, expected.conditions, expected.seeds)
    assert found.pool_states == {"G": 5, "S": 134, "U": 3}
    for name in ("ids", "states", "greedy", "samples"):
        assert (getattr(found.audit, name) == getattr(expected.audit, name)).all()
    assert found.audit.greedy_texts == expected.audit.greedy_texts
    assert found.audit.prompts == expected.audit.prompts
    assert found.audit.golds == expected.audit.golds
    for ours, theirs in zip(found.arms, expected.arms, strict=True):
        assert (ours.arm, ours.budget, ours.matched) == (theirs.arm, theirs.budget, theirs.matched)
        assert ours.problems == theirs.problems
        assert (ours.statuses == theirs.statuses).all()
        assert ours.texts == theirs.texts
    assert found.warnings == expected.warnings
    assert found.seconds == expected.seconds  # without this stage's own
    assert found.days == ("2026-11-20", "2026-11-21")


@pytest.mark.parametrize("key", ["n", "repetitions", "exposures", "steps"])
def test_a_budget_is_the_one_that_is_sealed_with_its_training_set(inputs, tmp_path, key):
    manifest = json.loads(json.dumps(write_run(tmp_path, inputs)))
    manifest["budgets"]["all_verified-seed21"][key] += 1
    with pytest.raises(GapftError, match=rf"all_verified-seed21 has {key} = "):
        read_inputs(tmp_path, manifest)


def test_no_arm_is_matched_by_what_the_manifest_says(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    manifest["budgets"]["all_verified-seed21"]["matched"] = True
    with pytest.raises(GapftError, match=r"all_verified-seed21 .* matched, .* 295 .* 134\."):
        read_inputs(tmp_path, manifest)


def test_a_groups_slots_are_its_conditions_and_the_replay(inputs, tmp_path):
    recipe = {**inputs.recipe, "budget": {"n": 130, "replay": 4}}
    own = {**dict.fromkeys(inputs.conditions), "all_verified": {"n": 291}}
    arms = tuple(replace(arm, matched=True) for arm in inputs.arms)
    inputs = replace(inputs, recipe={**recipe, "conditions": own}, arms=arms)
    assert all(arm.matched for arm in read_inputs(tmp_path, write_run(tmp_path, inputs)).arms)


def test_a_training_set_of_other_slots_than_its_budget_is_none(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    write_selection(tmp_path, inputs.arms[0], [selected("x", "S")])
    with pytest.raises(GapftError, match=r"has 1 slots, .* n = 134"):
        read_inputs(tmp_path, manifest)


def test_no_budget_means_nothing_was_trained(inputs, tmp_path):
    manifest = {**write_run(tmp_path, inputs), "budgets": {}}
    found = read_inputs(tmp_path, manifest)
    assert (found.conditions, found.arms) == ((), ())


def test_states_that_contradict_the_verdicts_are_an_error(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    ids = np.sort(inputs.audit.ids).tolist()
    rows = [{"problem_id": i, "state": "G", "passing_samples": 0} for i in ids]
    write(tmp_path / "audit/states.parquet", rows, state_schema())
    with pytest.raises(GapftError, match="states do not follow from the verdicts"):
        read_inputs(tmp_path, manifest)


def test_the_order_of_the_recipes_seeds_says_nothing(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    manifest["recipe"]["seeds"] = manifest["recipe"]["seeds"][::-1]
    found = read_inputs(tmp_path, manifest)
    assert (found.seeds, [of.arm for of in found.arms]) == (
        inputs.seeds,
        [of.arm for of in inputs.arms],
    )


def test_problems_that_are_not_ordered_by_id_are_an_error(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    path = tmp_path / "audit/problems.parquet"
    pq.write_table(pq.read_table(path).take([1, 0, *range(2, len(inputs.audit.ids))]), path)
    with pytest.raises(GapftError, match="the problems are not ordered by their ids"):
        read_inputs(tmp_path, manifest)


def test_decisions_on_other_problems_are_an_error(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    path = tmp_path / f"decisions/{inputs.arms[0].arm.name}.parquet"
    write(path, [response("elsewhere", -1, "", "pass")], response_schema())
    with pytest.raises(GapftError, match="other problems than the audit"):
        read_inputs(tmp_path, manifest)


def test_another_number_of_samples_is_an_error(inputs, tmp_path):
    manifest = write_run(tmp_path, inputs)
    manifest["recipe"] = {**manifest["recipe"], "search": {"k": 4, "seed": 0}}
    with pytest.raises(GapftError, match="different problems or a different order"):
        read_inputs(tmp_path, manifest)


@pytest.fixture
def compared():
    return planted.allocation_inputs(sizes=(12, 9, 8))


def test_halves_are_read_off_the_selections_and_decisions(compared, tmp_path):
    manifest = write_run(tmp_path, compared)
    found = read_inputs(tmp_path, json.loads(json.dumps(manifest)), PARTS).find_part_data(
        "allocation"
    )
    expected = compared.find_part_data("allocation")
    assert (found.diffuse, found.concentrated) == ("diffuse", "concentrated")
    for ours, theirs in zip(found.seeds, expected.seeds, strict=True):
        assert (ours.seed, ours.replay) == (theirs.seed, theirs.replay)
        for name in ("ids", "halves", "diffuse", "concentrated"):
            assert (getattr(ours, name) == getattr(theirs, name)).all()


def test_without_the_key_no_selection_is_looked_for(compared, tmp_path):
    manifest = write_run(tmp_path, replace(compared, parts=()))
    manifest["recipe"]["experiments"] = {}
    assert read_inputs(tmp_path, manifest, PARTS).find_part_data("allocation") is None


def test_decisions_on_other_problems_than_the_halves_are_an_error(compared, tmp_path):
    manifest = write_run(tmp_path, compared)
    path = tmp_path / "decisions/concentrated-seed21.exposed.parquet"
    write(path, [response("elsewhere", -1, "", "pass")], response_schema())
    with pytest.raises(GapftError, match=r"concentrated-seed21\.exposed.*other problems than the"):
        read_inputs(tmp_path, manifest, PARTS)


def test_selections_that_are_no_halves_are_an_error(compared, tmp_path):
    manifest = write_run(tmp_path, compared)
    in_a = (
        compared.find_part_data("allocation")
        .seeds[0]
        .ids[compared.find_part_data("allocation").seeds[0].halves == "A"]
        .tolist()
    )
    others = [f"z{i}" for i in range(134 - len(in_a))]
    arm = next(of for of in compared.arms if of.arm.name == "concentrated-seed13")
    write_selection(tmp_path, arm, [selected(i, "S") for i in (*in_a, *others)])
    with pytest.raises(UserError, match=r"diffuse-seed13 and concentrated-seed13.* 1 and 1 times"):
        read_inputs(tmp_path, manifest, PARTS)
