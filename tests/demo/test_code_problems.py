"""The programming problems: meaning of steps, splits, tests, and bundled files."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies.code_problems import (
    AUDIT_SIZE,
    MAX_STEPS,
    OPENINGS,
    POOL_SIZE,
    CodeProblem,
    constant,
    generate,
    main,
    stream,
    unfinished_answer,
)
from demo_policies.code_steps import ENDINGS, READINGS, STEPS, Step, evaluate, program
from demo_policies.code_tests import HIDDEN, LARGEST_ANSWER
from demo_policies.problems import Split
from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness.verification.programs import last_program, read_suite

SHIPPED = Path(__file__).resolve().parents[2] / "tasks" / "demo_code"
SPLITS: list[Split] = ["pretrain", "tuning", "pool", "audit"]
splits = st.sampled_from(SPLITS)
seeds = st.integers(0, 10_000)

EVEN, ADD = STEPS["line"][0], STEPS["line"][5]
SUM = ENDINGS["line"][0]


def read_records(name: str) -> list[dict[str, Any]]:
    lines = (SHIPPED / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def extract_request(record: dict[str, Any]) -> str:
    return str(record["question"]).split("\n")[0].removeprefix(f"{record['opening']}: ")


def extract_gold(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("kind", "function", "tests", "public")}


def build_tests(problem: CodeProblem) -> list[Test]:
    return [Test(f"{test.line}\n", f"{test.answer}\n") for test in problem.tests.tests]


def extract_program(response: str) -> Program:
    program_text = last_program(response)
    assert program_text is not None
    return Program(program_text)


@pytest.fixture(scope="module")
def sandbox() -> Any:
    with Sandbox(workers=1) as running:
        yield running


def test_builds_question_and_programs() -> None:
    problem = CodeProblem("Sketch", "line", (Step(EVEN), Step(ADD, 3)), SUM)
    example = problem.tests.tests[0]
    assert problem.question == (
        "Sketch: read a line of integers, keep the even ones, add 3 to each, print the sum.\n"
        f"Example: {example.line} gives {example.answer}\n\n"
    )
    assert problem.whole == (
        "```python\nx = list(map(int, input().split()))\nx = [v for v in x if v % 2 == 0]\n"
        "x = [v + 3 for v in x]\nprint(sum(x))\n```"
    )
    assert problem.unfinished == problem.whole.replace("x = [v + 3 for v in x]\n", "")
    assert constant(-4) == "```python\nprint(-4)\n```"
    assert evaluate(problem.steps, SUM, [3, 4, 10]) == 4 + 3 + 10 + 3
    assert unfinished_answer(problem, [3, 4, 10]) == 14


def test_step_meanings_match_their_code(sandbox: Sandbox) -> None:
    inputs = {"line": [[3, 14, 0, 25, 14, 8], [40, 1, 7]], "pair": [[13, 40], [40, 13], [6, 6]]}
    items = []
    for family, kinds in STEPS.items():
        for kind in kinds:
            numbers = (kind.numbers[0], kind.numbers[-1]) if kind.numbers else (0,)
            for number in numbers:
                for ending in ENDINGS[family]:
                    steps = (Step(kind, number),)
                    tests = [
                        Test(" ".join(map(str, values)), str(evaluate(steps, ending, values)))
                        for values in inputs[family]
                    ]
                    items.append((Program(program(family, steps, ending)), tests))
    results = sandbox.judge(items)
    assert [(i[0].source, r.verdict) for i, r in zip(items, results, strict=True)] == [
        (i[0].source, "accepted") for i in items
    ]


def test_tests_accept_whole_and_reject_lazy_programs(sandbox: Sandbox) -> None:
    problems = generate("tuning", 24, 3)
    lazy = [(problem, problem.unfinished) for problem in problems]
    lazy += [(p, constant(t.answer)) for p in problems for t in p.tests.tests[: p.tests.public]]
    whole = [(problem, problem.whole) for problem in problems]
    results = sandbox.judge([(extract_program(text), build_tests(p)) for p, text in whole + lazy])
    verdicts = [result.verdict for result in results]
    assert verdicts == ["accepted"] * len(whole) + ["wrong_answer"] * len(lazy)


@settings(max_examples=40, deadline=None)
@given(split=splits, seed=seeds)
def test_hidden_tests_detect_missing_steps_and_constants(split: Split, seed: int) -> None:
    for problem in generate(split, 6, seed):
        hidden = problem.tests.tests[problem.tests.public :]
        assert (len(hidden), problem.tests.public in (1, 2)) == (HIDDEN, True)
        assert len({test.answer for test in hidden}) > 1
        for left_out in range(len(problem.steps)):
            steps = problem.steps[:left_out] + problem.steps[left_out + 1 :]
            assert any(evaluate(steps, problem.ending, [*t.values]) != t.answer for t in hidden)
        for test in problem.tests.tests:
            assert len(test.values) <= READINGS[problem.family].most
            assert abs(test.answer) <= LARGEST_ANSWER
            assert test.answer == evaluate(problem.steps, problem.ending, [*test.values])


def test_public_tests_miss_some_last_steps() -> None:
    problems = generate("tuning", 300, 1)
    blind = [
        all(
            unfinished_answer(problem, test.values) == test.answer
            for test in problem.tests.tests[: problem.tests.public]
        )
        for problem in problems
    ]
    assert 0.2 < sum(blind) / len(blind) < 0.4
    two = [problem.tests.public == 2 for problem in problems]
    assert 0.3 < sum(two) / len(two) < 0.6


def test_rejects_step_without_effect() -> None:
    sort, count = STEPS["line"][11], ENDINGS["line"][1]
    problem = CodeProblem("Sketch", "line", (Step(sort),), count)
    assert problem.suite is None
    with pytest.raises(ValueError, match="makes no difference: read a line of integers, sort them"):
        _ = problem.question


@settings(max_examples=25, deadline=None)
@given(first=splits, second=splits, seed=seeds, second_seed=seeds)
def test_splits_share_no_request(first: Split, second: Split, seed: int, second_seed: int) -> None:
    problems = generate(first, 40, seed)
    assert {problem.split for problem in problems} == {first}
    shared = {p.request for p in problems} & {p.request for p in generate(second, 40, second_seed)}
    assert not shared or first == second


@given(opening=st.sampled_from(OPENINGS), seed=seeds)
@settings(deadline=None)
def test_opening_does_not_change_split_or_tests(opening: str, seed: int) -> None:
    problem = next(stream("pool", seed))
    renamed = CodeProblem(opening, problem.family, problem.steps, problem.ending)
    assert (renamed.split, renamed.tests) == ("pool", problem.tests)


@settings(max_examples=20, deadline=None)
@given(split=splits, seed=seeds, count=st.integers(0, 30), more=st.integers(0, 30))
def test_problems_are_distinct_balanced_and_extendable(
    split: Split, seed: int, count: int, more: int
) -> None:
    problems = generate(split, count, seed)
    assert len({problem.request for problem in problems}) == count
    openings = Counter(problem.opening for problem in problems)
    assert max(openings[o] for o in OPENINGS) - min(openings[o] for o in OPENINGS) <= 1
    assert generate(split, count + more, seed)[:count] == problems


def test_generates_thousands_of_programs_of_every_length() -> None:
    problems = list(islice(stream("pretrain", 5), 6_000))
    assert len({problem.whole for problem in problems}) > 4_000
    lengths = Counter(len(problem.steps) for problem in problems)
    assert set(lengths) == set(range(1, MAX_STEPS + 1))
    assert min(lengths.values()) > 600
    assert {problem.family for problem in problems} == set(READINGS)


def test_rejects_unknown_split() -> None:
    with pytest.raises(ValueError, match=r"'test', expected one of pretrain, tuning, pool, audit"):
        next(stream("test", 0))  # type: ignore[arg-type]


def test_shipped_files_equal_generated_files(tmp_path: Path) -> None:
    main(["--out", str(tmp_path)])
    for name in ("pool.jsonl", "audit.jsonl"):
        assert (tmp_path / name).read_bytes() == (SHIPPED / name).read_bytes(), name


def test_shipped_files_hold_distinct_readable_problems() -> None:
    pool, audit = read_records("pool.jsonl"), read_records("audit.jsonl")
    assert (len(pool), len(audit)) == (POOL_SIZE, AUDIT_SIZE)
    for field in ("id", "question"):
        assert len({record[field] for record in pool + audit}) == POOL_SIZE + AUDIT_SIZE
    assert len({extract_request(record) for record in pool + audit}) == POOL_SIZE + AUDIT_SIZE
    for record in pool + audit:
        suite = read_suite(extract_gold(record))
        assert (suite.kind, len(suite.tests)) == ("stdin", suite.public + HIDDEN)
        example = suite.public_tests[0]
        assert (
            f"Example: {example.input.strip()} gives {example.expected.strip()}\n"
            in record["question"]
        )


def test_shipped_solutions_pass_their_tests(sandbox: Sandbox) -> None:
    chosen = read_records("pool.jsonl")[::8] + read_records("audit.jsonl")[::8]
    items = [(extract_program(r["solution"]), read_suite(extract_gold(r)).tests) for r in chosen]
    assert {result.verdict for result in sandbox.judge(items)} == {"accepted"}


def test_pretraining_uses_no_shipped_request() -> None:
    held_out = {
        extract_request(record)
        for record in read_records("pool.jsonl") + read_records("audit.jsonl")
    }
    met = {
        problem.request
        for seed in (0, 1_000_000)
        for problem in islice(stream("pretrain", seed), 5_000)
    }
    assert not held_out & met
