"""The demo's problems: meaning, splits, and bundled files."""

from __future__ import annotations

import ast
import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies.problems import (
    AUDIT_SIZE,
    LARGEST,
    MAX_OPERATIONS,
    POOL_SIZE,
    VERBS,
    Operation,
    Problem,
    Split,
    generate,
    main,
    split_of,
    stream,
)

SHIPPED = Path(__file__).resolve().parents[2] / "tasks" / "demo"
SPLITS: list[Split] = ["pretrain", "tuning", "pool", "audit"]
splits = st.sampled_from(SPLITS)
seeds = st.integers(0, 10_000)


def read_records(name: str) -> list[dict[str, str | int]]:
    lines = (SHIPPED / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def extract_expression(record: dict[str, str | int]) -> str:
    return str(record["question"]).split(" ", 1)[1].removesuffix(".")


def evaluate_left_to_right(text: str) -> int:
    """Evaluate a question's expression independently, with brackets and Python's parser."""
    first, *links = text.split()
    bracketed = first
    for link in links:
        bracketed = f"({bracketed}{link})"
    return int(eval(compile(ast.parse(bracketed, mode="eval"), "<expression>", "eval")))


def test_builds_problem_from_left_to_right() -> None:
    problem = Problem("Find", 22, (Operation("+", 17), Operation("*", 2)))
    assert problem.question == "Find 22 +17 *2."
    assert problem.values == (22, 39, 78)
    assert problem.worked == r"22+17=39; 39*2=78; \boxed{78}"
    assert problem.shortcut == r"By eye; \boxed{78}"


@settings(max_examples=60, deadline=None)
@given(split=splits, seed=seeds)
def test_generated_problems_follow_task_rules(split: Split, seed: int) -> None:
    for problem in generate(split, 12, seed):
        assert problem.split == split
        assert 1 <= len(problem.operations) <= MAX_OPERATIONS
        assert all(0 <= value <= LARGEST for value in problem.values)
        assert problem.answer == evaluate_left_to_right(problem.expression)
        assert problem.worked.endswith(rf"\boxed{{{problem.answer}}}")


@settings(max_examples=40, deadline=None)
@given(first=splits, second=splits, seed=seeds, second_seed=seeds)
def test_splits_share_no_expression(
    first: Split, second: Split, seed: int, second_seed: int
) -> None:
    shared = {p.expression for p in generate(first, 60, seed)} & {
        p.expression for p in generate(second, 60, second_seed)
    }
    assert not shared or first == second


@given(verb=st.sampled_from(VERBS), seed=seeds)
def test_verb_does_not_change_split(verb: str, seed: int) -> None:
    problem = next(stream("pool", seed))
    assert Problem(verb, problem.start, problem.operations).split == "pool"


@settings(max_examples=30, deadline=None)
@given(split=splits, seed=seeds, count=st.integers(0, 40), more=st.integers(0, 40))
def test_problems_are_distinct_balanced_and_extendable(
    split: Split, seed: int, count: int, more: int
) -> None:
    problems = generate(split, count, seed)
    assert len({problem.expression for problem in problems}) == count
    verbs = Counter(problem.verb for problem in problems)
    assert max(verbs[verb] for verb in VERBS) - min(verbs[verb] for verb in VERBS) <= 1
    assert generate(split, count + more, seed)[:count] == problems


def test_splits_have_their_hash_shares() -> None:
    counts = Counter(split_of(f"{percent:016x}") for percent in range(100))
    assert counts == {"pretrain": 70, "tuning": 10, "pool": 10, "audit": 10}


def test_rejects_unknown_split() -> None:
    with pytest.raises(ValueError, match=r"'test', expected one of pretrain, tuning, pool, audit"):
        next(stream("test", 0))  # type: ignore[arg-type]


def test_shipped_files_equal_generated_files(tmp_path: Path) -> None:
    main(["--out", str(tmp_path)])
    for name in ("pool.jsonl", "audit.jsonl"):
        assert (tmp_path / name).read_bytes() == (SHIPPED / name).read_bytes(), name


def test_shipped_files_hold_distinct_balanced_problems() -> None:
    pool, audit = read_records("pool.jsonl"), read_records("audit.jsonl")
    assert (len(pool), len(audit)) == (POOL_SIZE, AUDIT_SIZE) == (400, 1_000)
    assert len({record["id"] for record in pool + audit}) == 1_400
    assert len({extract_expression(record) for record in pool + audit}) == 1_400
    for rows in (pool, audit):
        verbs = Counter(record["verb"] for record in rows)
        assert set(verbs) == set(VERBS)
        assert max(verbs.values()) - min(verbs.values()) <= 1


def test_shipped_answers_are_right() -> None:
    for record in read_records("pool.jsonl") + read_records("audit.jsonl"):
        answer = evaluate_left_to_right(extract_expression(record))
        assert record["answer"] == str(answer)
        assert str(record["solution"]).endswith(rf"\boxed{{{answer}}}")
        assert record["shortcut"] == rf"By eye; \boxed{{{answer}}}"
        assert str(record["question"]).startswith(f"{record['verb']} ")


def test_pretraining_uses_no_shipped_expression() -> None:
    held_out = {
        extract_expression(record)
        for record in read_records("pool.jsonl") + read_records("audit.jsonl")
    }
    met = {problem.expression for problem in islice(stream("pretrain", 0), 20_000)}
    assert not held_out & met
