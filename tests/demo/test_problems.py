"""The problems of both demos: what they mean, their splits, and the bundled files."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies import code_problems, problems
from demo_policies.code_problems import CodeProblem, constant, unfinished_answer
from demo_policies.code_steps import ENDINGS, READINGS, STEPS, Step, evaluate, program
from demo_policies.code_tests import HIDDEN, LARGEST_ANSWER
from demo_policies.problems import LARGEST, MAX_OPERATIONS, Operation, Problem, Split
from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness.verification.programs import last_program, read_suite

TASKS = Path(__file__).resolve().parents[2] / "tasks"
SPLITS: list[Split] = ["pretrain", "tuning", "pool", "audit"]
splits, seeds = st.sampled_from(SPLITS), st.integers(0, 10_000)

Record = dict[str, Any]


@dataclass(frozen=True)
class Demo:
    """A demo's problems: their module and files, and how content and opening word are named."""

    module: ModuleType
    folder: Path
    content: str
    word: str
    words: tuple[str, ...]
    read_content: Callable[[Record], str]

    def read_records(self) -> tuple[list[Record], list[Record]]:
        """Read the bundled pool and audit."""
        pool, audit = (
            [json.loads(line) for line in (self.folder / name).read_text("utf-8").splitlines()]
            for name in ("pool.jsonl", "audit.jsonl")
        )
        return pool, audit


DEMOS = {
    "arithmetic": Demo(
        problems, TASKS / "demo", "expression", "verb", (*problems.VERBS,),
        lambda record: str(record["question"]).split(" ", 1)[1].removesuffix("."),
    ),
    "programs": Demo(
        code_problems, TASKS / "demo_code", "request", "opening", (*code_problems.OPENINGS,),
        lambda record: record["question"].split("\n")[0].removeprefix(f"{record['opening']}: "),
    ),
}  # fmt: skip
demos = st.sampled_from([*DEMOS.values()])


@pytest.fixture(params=DEMOS)
def demo(request: pytest.FixtureRequest) -> Demo:
    return DEMOS[request.param]


@pytest.fixture(scope="module")
def sandbox() -> Any:
    with Sandbox(workers=1) as running:
        yield running


# Both demos


@settings(max_examples=40, deadline=None)
@given(demo=demos, first=splits, second=splits, seed=seeds, second_seed=seeds)
def test_splits_share_no_content(
    demo: Demo, first: Split, second: Split, seed: int, second_seed: int
) -> None:
    generated = demo.module.generate(first, 40, seed)
    assert {problem.split for problem in generated} == {first}
    others = demo.module.generate(second, 40, second_seed)
    contents = ({getattr(p, demo.content) for p in group} for group in (generated, others))
    assert first == second or not set.intersection(*contents)


@settings(max_examples=40, deadline=None)
@given(
    demo=demos, split=splits, seed=seeds, count=st.integers(0, 30), more=st.integers(0, 30)
)  # fmt: skip
def test_problems_are_distinct_balanced_and_extendable(
    demo: Demo, split: Split, seed: int, count: int, more: int
) -> None:
    generated = demo.module.generate(split, count, seed)
    assert len({getattr(problem, demo.content) for problem in generated}) == count
    check_balance(demo, [getattr(problem, demo.word) for problem in generated])
    assert demo.module.generate(split, count + more, seed)[:count] == generated


def check_balance(demo: Demo, words: list[str]) -> None:
    counts = Counter(words)
    assert max(counts[w] for w in demo.words) - min(counts[w] for w in demo.words) <= 1


def test_rejects_unknown_split(demo: Demo) -> None:
    with pytest.raises(ValueError, match="'test'"):
        next(demo.module.stream("test", 0))


def test_bundled_files_are_generated_distinct_and_unused(demo: Demo, tmp_path: Path) -> None:
    """The files are reproduced by their program; pretraining meets none of their problems."""
    demo.module.main(["--out", str(tmp_path)])
    for name in ("pool.jsonl", "audit.jsonl"):
        assert (tmp_path / name).read_bytes() == (demo.folder / name).read_bytes(), name
    pool, audit = demo.read_records()
    assert (len(pool), len(audit)) == (demo.module.POOL_SIZE, demo.module.AUDIT_SIZE)
    contents = {demo.read_content(record) for record in pool + audit}
    assert len(contents) == len({record["id"] for record in pool + audit}) == len(pool + audit)
    for rows in (pool, audit):
        check_balance(demo, [record[demo.word] for record in rows])
    met = {
        getattr(problem, demo.content)
        for seed in (0, 1_000_000)
        for problem in islice(demo.module.stream("pretrain", seed), 5_000)
    }
    assert not contents & met


# Arithmetic


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
    for problem in problems.generate(split, 12, seed):
        assert 1 <= len(problem.operations) <= MAX_OPERATIONS
        assert all(0 <= value <= LARGEST for value in problem.values)
        assert problem.answer == evaluate_left_to_right(problem.expression)
        assert problem.worked.endswith(rf"\boxed{{{problem.answer}}}")


def test_bundled_answers_are_right() -> None:
    demo = DEMOS["arithmetic"]
    pool, audit = demo.read_records()
    for record in pool + audit:
        answer = evaluate_left_to_right(demo.read_content(record))
        assert record["answer"] == str(answer)
        assert record["solution"].endswith(rf"\boxed{{{answer}}}")
        assert record["shortcut"] == rf"By eye; \boxed{{{answer}}}"
        assert record["question"].startswith(f"{record['verb']} ")


# Programs

EVEN, ADD = STEPS["line"][0], STEPS["line"][5]
SUM = ENDINGS["line"][0]


def extract_gold(record: Record) -> Record:
    return {name: record[name] for name in ("kind", "function", "tests", "public")}


def extract_program(response: str) -> Program:
    program_text = last_program(response)
    assert program_text is not None
    return Program(program_text)


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
    chosen = code_problems.generate("tuning", 24, 3)
    lazy = [(problem, problem.unfinished) for problem in chosen]
    lazy += [(p, constant(t.answer)) for p in chosen for t in p.tests.tests[: p.tests.public]]
    whole = [(problem, problem.whole) for problem in chosen]
    results = sandbox.judge(
        [
            (
                extract_program(text),
                [Test(f"{test.line}\n", f"{test.answer}\n") for test in problem.tests.tests],
            )
            for problem, text in whole + lazy
        ]
    )
    verdicts = [result.verdict for result in results]
    assert verdicts == ["accepted"] * len(whole) + ["wrong_answer"] * len(lazy)


@settings(max_examples=40, deadline=None)
@given(split=splits, seed=seeds)
def test_hidden_tests_detect_missing_steps_and_constants(split: Split, seed: int) -> None:
    for problem in code_problems.generate(split, 6, seed):
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
    chosen = code_problems.generate("tuning", 300, 1)
    blind = [
        all(
            unfinished_answer(problem, test.values) == test.answer
            for test in problem.tests.tests[: problem.tests.public]
        )
        for problem in chosen
    ]
    assert 0.2 < sum(blind) / len(blind) < 0.4


def test_rejects_step_without_effect() -> None:
    sort, count = STEPS["line"][11], ENDINGS["line"][1]
    problem = CodeProblem("Sketch", "line", (Step(sort),), count)
    assert problem.suite is None
    with pytest.raises(ValueError, match="sort"):
        _ = problem.question


def test_generates_thousands_of_programs_of_every_length() -> None:
    chosen = list(islice(code_problems.stream("pretrain", 5), 6_000))
    assert len({problem.whole for problem in chosen}) > 4_000
    lengths = Counter(len(problem.steps) for problem in chosen)
    assert set(lengths) == set(range(1, code_problems.MAX_STEPS + 1))
    assert min(lengths.values()) > 600
    assert {problem.family for problem in chosen} == set(READINGS)


def test_bundled_solutions_pass_their_tests(sandbox: Sandbox) -> None:
    pool, audit = DEMOS["programs"].read_records()
    items = []
    for number, record in enumerate(pool + audit):
        suite = read_suite(extract_gold(record))
        example = suite.public_tests[0]
        shown = f"Example: {example.input.strip()} gives {example.expected.strip()}\n"
        assert shown in record["question"]
        if number % 8 == 0:
            items.append((extract_program(record["solution"]), suite.tests))
    assert {result.verdict for result in sandbox.judge(items)} == {"accepted"}
