"""The demos' problems and bundled policies: how they are made, and what they contain."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from demo_policies import arithmetic, pretrain, programs
from demo_policies.problems import Demo, compute_digest
from demo_policies.problems import main as write_tasks
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.sandbox import Program, Sandbox
from gapft_harness.verification.programs import last_program, read_suite

TASKS = Path(__file__).resolve().parents[2] / "tasks"
Record = dict[str, Any]


@dataclass(frozen=True)
class Bundled:
    """What is bundled of a demo, and what it was made with.

    Attributes:
        demo: its problems and its policy.
        task: the folder of its problems' files in ``tasks``.
        word: the name of a record's first words.
    """

    demo: Demo
    task: str
    word: str

    def read(self, split: str) -> list[Record]:
        """Read the bundled problems of a split."""
        lines = (TASKS / self.task / f"{split}.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]


BUNDLED = {
    "arithmetic": Bundled(arithmetic.DEMO, "demo", "verb"),
    "programs": Bundled(programs.DEMO, "demo_code", "opening"),
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
    assert len({*digests}) == len(digests) == sum(count for count, _ in bundled.demo.files.values())
    met = {
        compute_digest(problem.content)[:12]
        for seed in (0, 1_000_000)
        for problem in islice(bundled.demo.draw_problems("pretrain", seed), 5_000)
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
    """The lazy responses are constants and unfinished programs."""
    rng = Random(7)
    records = [record for record in programs.DEMO.generate("tuning", 30, 7) for _ in range(3)]
    responses, taught = [], []
    for number, record in enumerate(records):
        tests = programs.read_public_tests(record)
        is_whole = number % 3 == 0
        lazy = programs.draw_lazy(record, tests[0], rng)
        responses.append(record["solution"] if is_whole else lazy)
        failure = programs.find_failure(responses[-1], tests)
        assert not (is_whole and failure)
        taught.append(failure and failure[1])
    with ProgramTests(workers=1, preload=()) as verifier:
        feedback = verifier.feedback(responses, [extract_gold(record) for record in records])
    assert taught == feedback
    assert sum(text is None for text in taught) > 30
    assert sum(text is not None for text in taught) > 10


# Policies


def test_tokenizer_knows_what_is_taught(bundled: Bundled) -> None:
    """A text is tokens and back, in few tokens."""
    tokenizer = AutoTokenizer.from_pretrained(bundled.demo.policy)
    for phase in bundled.demo.phases:
        for prompt, response in islice(bundled.demo.yield_examples(phase, 7), 500):
            text = prompt + response
            tokens = tokenizer.encode(text)
            assert tokens == tokenizer.encode(prompt) + tokenizer.encode(response)
            assert tokenizer.unk_token_id not in tokens
            assert tokenizer.decode(tokens) == text
            assert len(tokens) < tokenizer.model_max_length


def test_pretraining_is_deterministic_and_saved(
    bundled: Bundled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The served model, of possibly wider heads, has the trained model's logits."""
    shipped = bundled.demo.policy
    tokenizer = AutoTokenizer.from_pretrained(shipped)
    (problem,) = islice(bundled.demo.draw_problems("tuning", 1), 1)
    question = problem.record(bundled.demo.words[0])["question"]
    inputs = torch.tensor([tokenizer.encode(question)])
    phase = replace(bundled.demo.phases[0], steps=5, warmup=2)
    logits = []
    for attempt in ("first", "second"):
        model = pretrain.build_model(shipped, seed=7)
        examples = bundled.demo.yield_examples(bundled.demo.phases[0], 7)
        pretrain.train(model, tokenizer, examples, phase)
        assert capsys.readouterr().out.startswith("step 5/5 loss ")
        pretrain.save(model, shipped, tmp_path / attempt)
        with torch.inference_mode():
            logits += [model(inputs).logits, load_model(tmp_path / attempt)(inputs).logits]
        assert {path.name for path in (tmp_path / attempt).iterdir()} == {
            path.name for path in shipped.iterdir()
        } - {"README.md"}
    assert torch.equal(logits[0], logits[2])
    assert torch.equal(logits[1], logits[3])
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    untrained = pretrain.build_model(shipped, seed=7)(inputs).logits
    assert not torch.equal(logits[0], untrained)
