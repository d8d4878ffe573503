"""Pool, audit and calibration share no problem: before generation, and when they are recorded."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import extract_content_hash
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import derive_key
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import list_warnings
from gapft_harness.stages.pipeline import STAGES
from gapft_harness.stages.search.disjoint import require_disjoint
from gapft_harness.stages.search.splits import divide_pool, read_splits, sort_by_hash
from gapft_harness.stages.verify.run import verify
from tests.kit.command import call
from tests.kit.letters import CONTAINS, write_letters
from tests.kit.recording_run import IN_PROCESS_PLUGIN, LettersTask, write_letters_task
from tests.kit.records import record_again
from tests.kit.tampering import read_rows, write_rows
from tests.lm_eval_bridge.sums import load_with_lm_eval

# Reading a task's splits

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


def build_recipe(calibration: object = None, **data: object) -> Recipe:
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
        write_split(tmp_path, split, [f"{split} {i}" for i in range(count)])
    return tmp_path


def write_split(folder: Path, split: str, questions: list[str]) -> None:
    records = [
        {"id": f"{split}{i}", "question": question, "answer": "A"}
        for i, question in enumerate(questions)
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / f"{split}.jsonl").write_text(lines)


def read_problems(folder: Path, recipe: Recipe, split: str) -> list[Problem]:
    return read_splits(load_task("letters", [folder]), recipe)[split].problems  # type: ignore[index]


def list_ids(problems: list[Problem]) -> set[str]:
    return {problem.id for problem in problems}


#: A problem's content hash and its prompt, each of which others may share.
CONTENTS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=2, max_size=25)


def build_problems(name: str, contents: list[tuple[int, int]]) -> list[Problem]:
    return [
        Problem(f"{name}{i}-{derive_key(digest) % 16**12:012x}", f"prompt {prompt}", "A")
        for i, (digest, prompt) in enumerate(contents)
    ]


def is_same(a: Problem, b: Problem) -> bool:
    return a.prompt == b.prompt or extract_content_hash(a.id) == extract_content_hash(b.id)


@given(CONTENTS, CONTENTS.map(lambda contents: contents[:4]), st.integers(1, 24), st.randoms())
def test_calibration_takes_the_last_problems_and_shares_none(
    contents: list[tuple[int, int]],
    of_audit: list[tuple[int, int]],
    size: int,
    rng: random.Random,
) -> None:
    """In any order of the split; so a limited pool, its first problems, stays as it is."""
    split, audit = build_problems("p", contents), build_problems("a", of_audit)
    free = [problem for problem in split if not any(is_same(problem, other) for other in audit)]
    calibration = sort_by_hash(free)[-size:]
    pool = [p for p in split if not any(is_same(p, other) for other in calibration)]
    if size > len(free) or not pool:
        with pytest.raises(UserError, match=rf"calibration.*asks for {size} of"):
            divide_pool(split, size, audit)
        return
    assert divide_pool(split, size, audit) == (pool, calibration)
    shown = [replace(p, prompt=f"example {number}; {p.prompt}") for number, p in enumerate(split)]
    parts = divide_pool(shown, size, audit, lambda problem: problem.prompt.rpartition("; ")[2])
    assert [[p.id for p in part] for part in parts] == [
        [p.id for p in part] for part in (pool, calibration)
    ], "questions are compared, not the examples before them"
    rng.shuffle(split)
    assert divide_pool(split, size, audit)[1] == calibration
    for other in (pool, audit):
        splits = {"calibration": calibration, "other": other}
        keyed = {name: [(p.id, p.prompt) for p in split] for name, split in splits.items()}
        require_disjoint(keyed, "t", keep_shared=False)


@pytest.mark.parametrize("limit", [None, 10])
def test_pool_loses_calibration_problems(folder: Path, limit: int | None) -> None:
    calibrated_recipe = build_recipe(7, pool_limit=limit)
    calibration, pool = (
        list_ids(read_problems(folder, calibrated_recipe, split))
        for split in ("calibration", "pool")
    )
    assert len(calibration) == 7
    assert len(pool) == (limit or 23)
    assert calibration.isdisjoint(pool)
    assert calibration | pool <= list_ids(read_problems(folder, build_recipe(), "pool"))
    assert list_ids(read_problems(folder, build_recipe(7), "calibration")) == calibration


def test_validation_split_can_calibrate(folder: Path) -> None:
    calibrated_recipe = build_recipe("validation")
    assert {p.prompt for p in read_problems(folder, calibrated_recipe, "calibration")} == {
        f"dev {i}" for i in range(8)
    }
    assert len(read_problems(folder, calibrated_recipe, "pool")) == 30


def test_overlapping_training_split_can_calibrate(folder: Path) -> None:
    whole = read_problems(folder, build_recipe(), "pool")
    shared = [problem.prompt for problem in sort_by_hash(whole)[-6:]]
    write_split(folder, "test", ["test 0", *shared])
    calibrated_recipe = build_recipe(7, drop_shared=True)
    expected = {
        "pool": {p.prompt for p in sort_by_hash(whole)[:-13]},
        "audit": {"test 0", *shared},
        "calibration": {p.prompt for p in sort_by_hash(whole)[-13:-6]},
    }
    for split, prompts in expected.items():
        problems = read_problems(folder, calibrated_recipe, split)
        assert {problem.prompt for problem in problems} == prompts, split


def test_finds_audit_question_among_few_shot_examples(folder: Path) -> None:
    """Its audit prompt follows other examples, and its record has another id."""
    (folder / "letters.yaml").write_text(TASK + "num_fewshot: 2\nfewshot_split: dev\n")
    assert len(read_problems(folder, build_recipe(), "audit")) == 10
    write_split(folder, "dev", [*(f"dev {i}" for i in range(8)), "test 3"])
    with pytest.raises(UserError, match=r"1 of the 9 records .* audit problems, first: dev8-"):
        read_problems(folder, build_recipe(), "audit")


def test_compares_questions_without_few_shot_examples(folder: Path) -> None:
    text = TASK.replace(", content: [question]", "")
    (folder / "letters.yaml").write_text(text + "num_fewshot: 2\nfewshot_split: dev\n")
    write_split(folder, "test", [*(f"test {i}" for i in range(9)), "train 7"])
    with pytest.raises(UserError, match="1 of 30 pool problems are also in the audit"):
        read_problems(folder, build_recipe(), "pool")
    assert len(read_problems(folder, build_recipe(drop_shared=True), "pool")) == 29


@pytest.mark.parametrize("shared", ["pool", "audit"])
def test_rejects_validation_split_with_shared_content(folder: Path, shared: str) -> None:
    shared_question = {"pool": "train 3", "audit": "test 3"}[shared]
    write_split(folder, "dev", ["dev 0", shared_question])
    with pytest.raises(UserError, match=rf"1 of 2 calibration problems are also in the {shared}"):
        read_problems(folder, build_recipe("validation"), "audit")


@pytest.mark.parametrize(
    ("calibration", "lines", "is_refused"),
    [
        (7, "", True),
        (7, "fewshot_split: train\n", True),
        (7, "fewshot_config: {split: train}\n", True),
        ("validation", "fewshot_split: dev\n", True),
        (None, "fewshot_split: test\n", True),
        (7, "fewshot_split: dev\n", False),
        ("validation", "", False),
        (None, "", False),
    ],
)
def test_few_shot_examples_come_from_no_evaluated_split(
    folder: Path, calibration: object, lines: str, is_refused: bool
) -> None:
    (folder / "letters.yaml").write_text(f"{TASK}num_fewshot: 2\n{lines}")
    for split in ("pool", "audit"):
        if is_refused:
            with pytest.raises(UserError, match="num_fewshot"):
                read_problems(folder, build_recipe(calibration), split)
            continue
        for problem in read_problems(folder, build_recipe(calibration), split):
            assert problem.prompt.count("\n\n") == 2


@pytest.mark.parametrize(("target", "is_refused"), [(0, False), (1, True)])
def test_few_shot_answers_are_judged_as_they_are_shown(
    folder: Path, target: int, is_refused: bool
) -> None:
    """A target may be the index of a choice."""
    config = f"fewshot_config: {{doc_to_choice: [A, B], doc_to_target: {target}}}\n"
    (folder / "letters.yaml").write_text(f"{TASK}num_fewshot: 2\nfewshot_split: dev\n{config}")
    build_requests = load_with_lm_eval(folder, "letters").build_all_requests
    if is_refused:
        with pytest.raises(UserError, match="8 of 8 checked, such as 'B'"):
            build_requests()
    else:
        build_requests()
        problem, *_ = read_problems(folder, build_recipe(), "pool")
        assert problem.prompt.count(" A") == 2


def test_other_processing_of_few_shot_examples_is_refused(folder: Path) -> None:
    (folder / "kept.py").write_text("def keep(docs):\n    return docs\n")
    (folder / "letters.yaml").write_text(
        f"{TASK}num_fewshot: 2\nfewshot_split: dev\n"
        "fewshot_config: {process_docs: !function kept.keep}\n"
    )
    with pytest.raises(UserError, match=r"fewshot_config\.process_docs is not supported"):
        read_problems(folder, build_recipe(), "pool")


# Commands

RECIPE = (
    "name: r\ndata: {task: letters}\n"
    "model: {backend: dummy, args: {pretrained: none}}\nexecutor: {name: here}\n"
)
SEARCH = ("run", "recipe.yaml", "--run-dir", "run", "--only", "search", "--include-path", "tasks")
OPTIONS = ("--plugin", "contains.py", "--plugin", "here.py")


@pytest.fixture
def task_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; jobs run in this process."""
    monkeypatch.chdir(tmp_path)
    write_letters(tmp_path, {"pool": 6, "audit": 4})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "here.py").write_text(IN_PROCESS_PLUGIN)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def share_problems(folder: Path, count: int) -> None:
    """Add problems of the pool to the audit, with other ids and white space."""
    lines = (folder / "tasks/pool.jsonl").read_text().splitlines()
    with (folder / "tasks/audit.jsonl").open("a") as audit:
        for record in map(json.loads, lines[:count]):
            again = {**record, "id": "other", "question": f"{record['question']} "}
            audit.write(json.dumps(again) + "\n")


def count_problems(run: Path) -> list[int]:
    return [len(read_rows(run / f"{split}/problems.parquet")) for split in ("pool", "audit")]


def test_shared_problems_are_refused(task_folder: Path) -> None:
    share_problems(task_folder, 6)
    for split in ("pool", "audit"):
        done = call(*SEARCH, "--split", split, *OPTIONS)
        assert done.returncode == 2
        assert "6 of 6 pool problems are also in the audit, first: pool0-" in done.stderr
        assert "data.drop_shared=true" in done.stderr
        assert not (task_folder / "run").exists()
    dry_run = call("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run")
    assert "6 of 6 pool problems are also in the audit" in dry_run.stdout


def test_drop_shared_removes_pool_problems(task_folder: Path) -> None:
    share_problems(task_folder, 2)
    done = call(*SEARCH, *OPTIONS, "--set", "data.drop_shared=true")
    assert done.returncode == 0, done.stderr
    assert "2 of 6 problems dropped" in " ".join(done.stderr.split())
    assert count_problems(task_folder / "run") == [4, 6]
    assert call("verify", "run", *OPTIONS).returncode == 0


def test_keep_shared_says_so_everywhere(task_folder: Path) -> None:
    share_problems(task_folder, 2)
    message, setting = "2 of 6 pool problems are also in the audit", "data.keep_shared=true"
    plan = ("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", "--set", setting)
    assert message in call(*plan).stdout
    done = call(*SEARCH, *OPTIONS, "--set", setting)
    assert done.returncode == 0, done.stderr
    assert message in " ".join(done.stderr.split())
    run = task_folder / "run"
    assert count_problems(run) == [6, 6]
    assert [line for line in list_warnings(RunDirectory.open(run)) if message in line]
    verified = call("verify", "run", *OPTIONS)
    assert (verified.returncode, message in verified.stdout) == (0, True)
    both = call(*plan, "--set", "data.drop_shared=true")
    assert both.returncode == 2
    assert "data.drop_shared" in both.stderr


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=8, audit=6)


def copy_prompt(run: RunDirectory) -> None:
    """Copy an audit problem's prompt to a pool problem, and record the table again."""
    path = run.path / "pool/problems.parquet"
    rows = read_rows(path)
    rows[0]["prompt"] = read_rows(run.path / "audit/problems.parquet")[0]["prompt"]
    write_rows(path, rows)
    record_again(run.path, "pool")


def test_verify_detects_shared_problems(task: LettersTask) -> None:
    run = task.run("r", ("states", "select"), ("pool", "audit"), conditions=["gapft"])
    assert verify(run.path, task.plugins).differences == []
    copy_prompt(run)
    message = "1 of 8 pool problems are also in the audit"
    assert any(message in line for line in verify(run.path, task.plugins).differences)
    with pytest.raises(UserError, match=message):
        STAGES["search"](task.context(run))


def test_warns_once_of_case_difference(task: LettersTask) -> None:
    with (task.folder / "tasks" / "audit.jsonl").open("a") as file:
        file.write(json.dumps({"id": "n", "question": "POOL 0?", "answer": "a"}) + "\n")
    run = task.run("r", splits=("pool", "audit"))
    STAGES["search"](task.context(run))
    warnings = [line for line in list_warnings(run) if "case or white space" in line]
    assert len(warnings) == 1
    assert len(read_rows(run.path / "pool/problems.parquet")) == 8
