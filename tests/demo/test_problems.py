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
from demo_policies.code_problems import constant
from demo_policies.code_steps import ENDINGS, STEPS, Step, evaluate, program
from demo_policies.problems import LARGEST, MAX_OPERATIONS, Split
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


def check_balance(demo: Demo, words: list[str]) -> None:
    counts = Counter(words)
    assert max(counts[w] for w in demo.words) - min(counts[w] for w in demo.words) <= 1


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


def extract_gold(record: Record) -> Record:
    return {name: record[name] for name in ("kind", "function", "tests", "public")}


def extract_program(response: str) -> Program:
    program_text = last_program(response)
    assert program_text is not None
    return Program(program_text)


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
