"""The demos' problems and bundled policies: how they are made, and what they contain."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from demo_policies import arithmetic, pretrain, programs
from demo_policies.problems import Demo
from demo_policies.problems import main as write_tasks
from demo_policies.programs import build_constant, build_unfinished, build_whole, write_feedback
from gapft_harness.demo import find_code_policy, find_policy
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.sandbox import Program, Sandbox
from gapft_harness.verification.programs import last_program, read_suite

TASKS = Path(__file__).resolve().parents[2] / "tasks"
Record = dict[str, Any]


@dataclass(frozen=True)
class Bundled:
    """What is bundled of a demo, and what it was made with.

    Attributes:
        demo: its problems.
        task: the folder of its problems' files in ``tasks``.
        word: the name of a record's first words.
        folder: the policy's folder.
        policy: what the policy was trained with.
    """

    demo: Demo[Any]
    task: str
    word: str
    folder: Path
    policy: pretrain.Policy

    def read(self, split: str) -> list[Record]:
        """Read the bundled problems of a split."""
        lines = (TASKS / self.task / f"{split}.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]


BUNDLED = {
    "arithmetic": Bundled(
        arithmetic.DEMO, "demo", "verb", find_policy(), pretrain.POLICIES["demo"]
    ),
    "programs": Bundled(
        programs.DEMO, "demo_code", "opening", find_code_policy(), pretrain.POLICIES["demo-code"]
    ),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread; for such a small model two are slower on a busy machine."""
    thread_count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(thread_count)


@pytest.fixture(scope="module", params=BUNDLED)
def bundled(request: pytest.FixtureRequest) -> Bundled:
    return BUNDLED[request.param]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1) as running:
        yield running


def load_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


# Problems


def test_bundled_files_are_made_again(tmp_path: Path) -> None:
    write_tasks(["--out", str(tmp_path)])
    for task in ("demo", "demo_code"):
        for name in ("pool.jsonl", "audit.jsonl"):
            assert (tmp_path / task / name).read_bytes() == (TASKS / task / name).read_bytes()


def test_bundled_problems_are_distinct_balanced_and_unused(bundled: Bundled) -> None:
    """Pre-training meets none of them."""
    digests: list[str] = []
    for split in ("pool", "audit"):
        records = bundled.read(split)
        digests += [record["id"].split("-")[1] for record in records]
        counts = Counter(record[bundled.word] for record in records)
        assert {*counts} == {*bundled.demo.words}
        assert max(counts.values()) - min(counts.values()) <= 1
    assert len({*digests}) == len(digests) == bundled.demo.pool[0] + bundled.demo.audit[0]
    met = {
        problem.digest[:12]
        for seed in (0, 1_000_000)
        for problem in islice(bundled.demo.stream("pretrain", seed), 5_000)
    }
    assert not met.intersection(digests)


def evaluate_left_to_right(text: str) -> int:
    """Evaluate a chain independently, with brackets and Python's parser."""
    bracketed, *links = text.split()
    for link in links:
        bracketed = f"({bracketed}{link})"
    return int(eval(compile(ast.parse(bracketed, mode="eval"), "<expression>", "eval")))


def test_bundled_answers_are_right() -> None:
    bundled = BUNDLED["arithmetic"]
    for record in bundled.read("pool") + bundled.read("audit"):
        word, _, content = record["question"].partition(" ")
        answer = evaluate_left_to_right(content.removesuffix("."))
        assert (record["verb"], record["answer"]) == (word, str(answer))
        assert record["solution"].endswith(rf"\boxed{{{answer}}}")
        assert record["shortcut"] == rf"By eye; \boxed{{{answer}}}"


def extract_program(response: str) -> Program:
    program_text = last_program(response)
    assert program_text is not None
    return Program(program_text)


def extract_gold(record: Record) -> Record:
    """Return the gold that the task gives the verifier."""
    return {name: record[name] for name in ("kind", "function", "tests", "public")}


def test_bundled_solutions_pass_their_tests(sandbox: Sandbox) -> None:
    bundled = BUNDLED["programs"]
    items = []
    for number, record in enumerate(bundled.read("pool") + bundled.read("audit")):
        suite = read_suite(extract_gold(record))
        example = suite.public_tests[0]
        shown = f"Example: {example.input.strip()} gives {example.expected.strip()}\n"
        assert shown in record["question"]
        if number % 8 == 0:
            items.append((extract_program(record["solution"]), suite.tests))
    assert {result.verdict for result in sandbox.judge(items)} == {"accepted"}


def test_taught_feedback_equals_the_verifiers() -> None:
    chosen = programs.DEMO.generate("tuning", 30, 7)
    pairs = [
        (problem, answer)
        for problem in chosen
        for answer in (
            build_whole(problem),
            build_unfinished(problem),
            build_constant(problem.tests[0].answer),
        )
    ]
    with ProgramTests(workers=1, preload=()) as verifier:
        found = verifier.feedback(
            [answer.text for _, answer in pairs],
            [extract_gold(problem.record()) for problem, _ in pairs],
        )
    failed = [(problem, answer, answer.find_failed(problem)) for problem, answer in pairs]
    assert found == [None if n is None else write_feedback(p, answer, n) for p, answer, n in failed]
    assert sum(text is None for text in found) > len(chosen)
    assert sum(text is not None for text in found) > 10


# Policies


def test_shipped_tokenizer_equals_built_one(bundled: Bundled, tmp_path: Path) -> None:
    bundled.policy.build_tokenizer().save_pretrained(tmp_path)
    shipped, built = (
        json.loads((folder / "tokenizer.json").read_text("utf-8"))
        for folder in (bundled.folder, tmp_path)
    )
    assert shipped == built


def test_pretraining_is_deterministic_and_saved(bundled: Bundled, tmp_path: Path) -> None:
    policy, tokenizer = bundled.policy, bundled.policy.build_tokenizer()
    question = next(bundled.demo.stream("tuning", 1)).question
    inputs = torch.tensor([tokenizer.encode(question)])
    logits = []
    for attempt in range(2):
        lines: list[str] = []
        model = pretrain.build_model(tokenizer, seed=7)
        phase = pretrain.Phase(5, 1e-3, 2, 4)
        pretrain.train(model, tokenizer, policy.yield_skill(7), phase, lines.append)
        assert lines[0].startswith("step 5/5 loss ")
        pretrain.save(model, tokenizer, tmp_path / str(attempt))
        with torch.inference_mode():
            logits += [model(inputs).logits, load_model(tmp_path / str(attempt))(inputs).logits]
    assert all(torch.equal(logits[0], other) for other in logits[1:])
    untrained = pretrain.build_model(tokenizer, seed=7)(inputs).logits
    assert not torch.equal(logits[0], untrained)
