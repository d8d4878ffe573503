"""Which problems calibrate: taken out by the frozen hash, and in neither pool nor audit."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import extract_content_hash
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import derive_key
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.stages.experiment import load_experiments
from gapft_harness.stages.integrity.disjoint import key_by_prompt, require_disjoint
from gapft_harness.stages.search.splits import divide_pool, read_split, read_splits, sort_by_hash

TASK = """
task: letters
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: train.jsonl, test: test.jsonl, dev: dev.jsonl}}
training_split: train
test_split: test
validation_split: dev
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 12}
metadata: {version: 1, gapft: {verifier: option_letter, id: "{{id}}", content: [question]}}
"""


def problems(count: int) -> list[Problem]:
    return [
        Problem(f"p{i}-{derive_key(i) % 16**12:012x}", f"question {i}", "A") for i in range(count)
    ]


def recipe(calibration: object = None, **data: object) -> Recipe:
    content = {
        "name": "r",
        "data": {"task": "letters", **data},
        "model": {"args": {"pretrained": "m"}},
    }
    scaling = (
        {} if calibration is None else {"experiments": {"scaling": {"calibration": calibration}}}
    )
    return check_recipe(content | scaling, "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "letters.yaml").write_text(TASK)
    for split, count in (("train", 30), ("test", 10), ("dev", 8)):
        write(tmp_path, split, [f"{split} {i}" for i in range(count)])
    return tmp_path


def write(folder: Path, split: str, questions: list[str]) -> None:
    records = [
        {"id": f"{split}{i}", "question": question, "answer": "A"}
        for i, question in enumerate(questions)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / f"{split}.jsonl").write_text(lines)


def read(folder: Path, wanted: Recipe, split: str) -> list[Problem]:
    return read_splits(load_task("letters", [folder]), wanted)[split].problems  # type: ignore[index]


def ids(found: list[Problem]) -> set[str]:
    return {problem.id for problem in found}


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 60), st.data(), st.randoms())
def test_a_division_parts_the_split_and_order_says_nothing(
    count: int, data: st.DataObject, rng: random.Random
) -> None:
    made = problems(count)
    taken = data.draw(st.integers(1, count - 1))
    found = divide_pool(made, taken)
    assert len(found.calibration) == taken
    assert ids(found.pool) | ids(found.calibration) == ids(made)
    assert ids(found.pool).isdisjoint(ids(found.calibration))
    rng.shuffle(made)
    assert ids(divide_pool(made, taken).calibration) == ids(found.calibration)


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 60), st.data())
def test_a_limited_pool_stays_as_it_is_where_there_are_problems_enough(
    count: int, data: st.DataObject
) -> None:
    made = problems(count)
    taken = data.draw(st.integers(1, count - 1))
    limit = data.draw(st.integers(1, count - taken))
    kept = sort_by_hash(divide_pool(made, taken).pool)[:limit]
    assert kept == sort_by_hash(made)[:limit]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=8, max_size=25))
def test_problems_of_the_content_that_is_taken_leave_the_pool(
    contents: list[tuple[int, int]],
) -> None:
    """Some repeat another's content hash, some its prompt."""
    made = [
        Problem(f"{i}-{derive_key(digest) % 16**12:012x}", f"prompt {prompt}", "A")
        for i, (digest, prompt) in enumerate(contents)
    ]
    taken = sort_by_hash(made)[-1]
    left = [
        problem
        for problem in made
        if problem.prompt != taken.prompt
        and extract_content_hash(problem.id) != extract_content_hash(taken.id)
    ]
    if not left:
        return
    found = divide_pool(made, 1)
    assert (found.calibration, found.pool) == ([taken], left)
    gone = len(made) - 1 - len(left)
    assert found.dropped.startswith(f"pool: {gone} problem" if gone else "")
    assert bool(found.dropped) == bool(gone)
    require_disjoint(
        key_by_prompt(found.calibration), key_by_prompt(found.pool), "calibration", "pool", "t"
    )


@settings(deadline=None, max_examples=50)
@given(
    st.integers(8, 40),
    st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["id", "hash", "prompt"])), max_size=9),
    st.integers(1, 12),
)
def test_what_the_audit_has_too_is_not_taken_and_stays_in_the_pool(
    count: int, repeated: list[tuple[int, str]], taken: int
) -> None:
    made = problems(count)
    by_row = {row % count: how for row, how in repeated}
    for row in (row for row, how in by_row.items() if how == "id"):
        made[row] = replace(made[row], id=f"plain{row}")  # without a content hash to go by
    audit = [_alike(made[row], how) for row, how in by_row.items()] + problems(50)[40:]
    free = [problem for row, problem in enumerate(made) if row not in by_row]
    if taken > len(free) or taken == count:
        with pytest.raises(UserError, match=rf"calibration.*asks for {taken} of"):
            divide_pool(made, taken, audit)
        return
    found = divide_pool(made, taken, audit)
    assert found.calibration == sort_by_hash(free)[-taken:]
    assert found.pool == [problem for problem in made if problem not in found.calibration]
    assert found.dropped == ""
    require_disjoint(
        key_by_prompt(found.calibration), key_by_prompt(audit), "calibration", "audit", "t"
    )


def _alike(problem: Problem, how: str) -> Problem:
    """A problem of another split that is the same by one of the three rules alone."""
    _, _, digest = problem.id.partition("-")
    return {
        "id": Problem(problem.id, "of the audit", "A"),
        "hash": Problem(f"audit-{digest}", "of the audit", "A"),
        "prompt": Problem("audit-ffffffffffff", problem.prompt, "A"),
    }[how]


def test_too_few_that_the_audit_has_not_are_refused_with_how_many_there_are() -> None:
    made = problems(5)
    assert len(divide_pool(made, 3, made[:2]).calibration) == 3
    with pytest.raises(UserError, match=r"5, but 2 of these are also in the audit; .* at most 3"):
        divide_pool(made, 4, made[:2])


def test_nothing_left_for_the_pool_is_refused() -> None:
    for count in (5, 6):
        with pytest.raises(UserError, match=rf"takes {count} problems .* has 5, .* none"):
            divide_pool(problems(5), count)


@pytest.mark.parametrize(
    "other",
    [
        Problem("a-0123456789ab", "x", "A"),
        Problem("b-0123456789ab", "x", "A"),
        Problem("a-0123456789ab#2", "x", "A"),
        Problem("c-ffffffffffff", "the prompt", "A"),
    ],
)
def test_a_shared_problem_is_named(other: Problem) -> None:
    calibration = key_by_prompt([Problem("a-0123456789ab", "the prompt", "A"), *problems(3)])
    with pytest.raises(UserError, match=r"1 of 4 calibration problems .* audit.*first: a-0123"):
        require_disjoint(
            calibration, key_by_prompt([*problems(9)[5:], other]), "calibration", "audit", "t"
        )
    require_disjoint(calibration, key_by_prompt(problems(9)[5:]), "calibration", "audit", "t")


@pytest.mark.parametrize(
    ("problem_id", "digest"),
    [
        ("7-0123456789ab", "0123456789ab"),
        ("0123456789ab#3", "0123456789ab"),
        ("a-b-0123456789ab#12", "0123456789ab"),
        ("0123456789ab-x", None),
        ("plain", None),
    ],
)
def test_the_content_hash_of_an_id(problem_id: str, digest: str | None) -> None:
    assert extract_content_hash(problem_id) == digest


def test_without_the_section_the_pool_is_the_training_split(folder: Path) -> None:
    assert len(read(folder, recipe(), "pool")) == 30


@pytest.mark.parametrize("limit", [None, 10])
def test_the_pool_loses_what_calibrates(folder: Path, limit: int | None) -> None:
    wanted = recipe(7, pool_limit=limit)
    calibration, pool = (ids(read(folder, wanted, split)) for split in ("calibration", "pool"))
    assert len(calibration) == 7
    assert len(pool) == (limit or 23)
    assert calibration.isdisjoint(pool)
    assert calibration | pool <= ids(read(folder, recipe(), "pool"))
    assert ids(read(folder, recipe(7), "calibration")) == calibration


@pytest.mark.parametrize("calibration", [7, "validation"])
def test_each_problem_is_rendered_once_however_often_its_split_is_read(
    folder: Path, calibration: object
) -> None:
    task, rendered = load_task("letters", [folder]), Counter[str]()
    build = task._task.fewshot_context

    def counted(document: Any, *args: Any, **named: Any) -> Any:
        rendered[document["question"]] += 1
        return build(document, *args, **named)

    task._task.fewshot_context = counted
    read_splits(task, recipe(calibration))
    read_splits(task, recipe(calibration))
    assert set(rendered.values()) == {1}
    assert len(rendered) == (40 if calibration == 7 else 48)


def test_what_was_taken_out_is_said(folder: Path) -> None:
    found = read_split(load_task("letters", [folder]), recipe(7), "pool")
    assert found.dropped == (
        "pool: 7 problems moved to the calibration split (experiments.scaling.calibration)",
    )
    assert read_split(load_task("letters", [folder]), recipe(7), "calibration").dropped == ()


def test_the_validation_split(folder: Path) -> None:
    wanted = recipe("validation")
    assert {p.prompt for p in read(folder, wanted, "calibration")} == {f"dev {i}" for i in range(8)}
    assert len(read(folder, wanted, "pool")) == 30


@pytest.mark.parametrize("split", ["pool", "audit", "calibration"])
def test_a_training_split_that_overlaps_the_audit_can_calibrate(folder: Path, split: str) -> None:
    whole = read(folder, recipe(), "pool")
    shared = [problem.prompt for problem in sort_by_hash(whole)[-6:]]
    write(folder, "test", ["test 0", *shared])
    wanted = recipe(7, drop_shared=True)
    found = {problem.prompt for problem in read(folder, wanted, split)}
    expected = {
        "pool": {p.prompt for p in sort_by_hash(whole)[:-13]},
        "audit": {"test 0", *shared},
        "calibration": {p.prompt for p in sort_by_hash(whole)[-13:-6]},
    }
    assert found == expected[split]


@pytest.mark.parametrize(("taken", "left"), [(14, 0), (15, 15), (20, 10)])
def test_a_calibration_that_halves_the_pool_is_warned_of(
    folder: Path, taken: int, left: int
) -> None:
    task = load_task("letters", [folder])
    said = read_split(task, recipe(taken), "pool").warnings
    assert [
        f"{taken} leaves {left} of 30 training problems in the pool" in line for line in said
    ] == ([True] if left else [])
    assert read_split(task, recipe(taken), "calibration").warnings == ()


@pytest.mark.parametrize("split", ["pool", "audit", "calibration"])
@pytest.mark.parametrize(
    ("calibration", "line", "shown", "instead"),
    [
        (7, "", "7 of the 30 .* are calibration", ", or calibrate on its validation split"),
        (7, "fewshot_split: train\n", "7 of the 30 .* are calibration", "its validation split"),
        (7, "fewshot_config: {split: train}\n", "7 of the 30 .* are calibration", ""),
        ("validation", "fewshot_split: dev\n", "8 of the 8 .* are calibration", "training split"),
        (None, "fewshot_split: test\n", "10 of the 10 .* are audit", ""),
        ("validation", "fewshot_split: test\n", "10 of the 10 .* are audit", ""),
    ],
)
def test_few_shot_examples_of_a_split_that_judges_are_refused(
    folder: Path, calibration: object, line: str, shown: str, instead: str, split: str
) -> None:
    (folder / "letters.yaml").write_text(TASK + "num_fewshot: 2\n" + line)
    said = rf"task letters: num_fewshot is 2, and {shown}.*fewshot_split.*num_few.*{instead}"
    with pytest.raises(UserError, match=said):
        read(folder, recipe(calibration), split)


@pytest.mark.parametrize(
    ("calibration", "lines"),
    [
        (7, "num_fewshot: 2\nfewshot_split: dev\n"),
        (7, "num_fewshot: 0\nfewshot_split: train\n"),
        ("validation", "num_fewshot: 2\n"),
        (None, "num_fewshot: 2\n"),
    ],
)
def test_few_shot_examples_of_another_split_are_fine(
    folder: Path, calibration: object, lines: str
) -> None:
    (folder / "letters.yaml").write_text(TASK + lines)
    shots = 2 * ("2" in lines)
    for split in ("pool", "audit"):
        for problem in read(folder, recipe(calibration), split):
            assert problem.prompt.count("\n\n") == shots


def test_a_single_example_that_the_audit_has_too_is_found_by_its_question(folder: Path) -> None:
    """Its prompt in the audit has other examples before it, and its record another id."""
    (folder / "letters.yaml").write_text(TASK + "num_fewshot: 2\nfewshot_split: dev\n")
    assert len(read(folder, recipe(), "audit")) == 10
    write(folder, "dev", [*(f"dev {i}" for i in range(8)), "test 3"])
    with pytest.raises(UserError, match=r"1 of the 9 records .* audit problems, first: dev8-"):
        read(folder, recipe(), "audit")


def test_with_examples_too_two_prompts_of_one_question_are_one(folder: Path) -> None:
    text = TASK.replace(", content: [question]", "")
    (folder / "letters.yaml").write_text(text + "num_fewshot: 2\nfewshot_split: dev\n")
    write(folder, "test", [*(f"test {i}" for i in range(9)), "train 7"])
    with pytest.raises(UserError, match="1 of 30 pool problems are also in the audit"):
        read(folder, recipe(), "pool")
    assert len(read(folder, recipe(drop_shared=True), "pool")) == 29


@pytest.mark.parametrize("split", ["pool", "audit", "calibration"])
@pytest.mark.parametrize("shared", ["pool", "audit"])
def test_a_validation_split_that_shares_content_is_refused_whatever_is_read_first(
    folder: Path, shared: str, split: str
) -> None:
    there = {"pool": "train 3", "audit": "test 3"}[shared]
    write(folder, "dev", ["dev 0", there])
    with pytest.raises(UserError, match=rf"1 of 2 calibration problems are also in the {shared}"):
        read(folder, recipe("validation"), split)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("validation_split: dev\n", "validation_split is missing"),
        ("test_split: test\n", "the validation split is the audit"),
    ],
)
def test_a_task_without_a_split_to_spare(folder: Path, line: str, why: str) -> None:
    (folder / "letters.yaml").write_text(TASK.replace(line, ""))
    with pytest.raises(UserError, match=why):
        read(folder, recipe("validation"), "audit")


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"calibration": 0}, "at least 1"),
        ({"calibration": "dev"}, "experiments.scaling.calibration"),
        ({"calibration": "9"}, "experiments.scaling.calibration"),
        ({"calibration": True}, "experiments.scaling.calibration"),
        ({}, "missing key 'experiments.scaling.calibration'"),
        ({"calibration": 5, "level": 1}, "less than 1"),
        ({"calibration": 5, "tolerance": 1.5}, "less than or equal to 1"),
    ],
)
def test_sections_that_do_not_hold(section: dict[str, object], why: str) -> None:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    with pytest.raises(UserError, match=why):
        load_experiments(
            check_recipe(content | {"experiments": {"scaling": section}}, "test"), load_plugins()
        )


def test_recorded_responses_are_of_no_scale() -> None:
    model = {"backend": "recorded", "args": {"pretrained": "m"}}
    content = {"name": "r", "data": {"task": "t"}, "model": model}
    scaling = {"experiments": {"scaling": {"calibration": 5}}}
    recipe = check_recipe(content | scaling, "test")
    with pytest.raises(UserError, match=r"'experiments\.scaling': needs a backend that generates"):
        check_names(recipe, load_plugins())
    check_names(recipe, load_plugins(), ["report"])
