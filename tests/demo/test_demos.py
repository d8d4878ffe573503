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
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies import arithmetic, pretrain, programs
from demo_policies.problems import Demo, Split
from demo_policies.problems import main as write_tasks
from demo_policies.programs import build_constant, build_unfinished, build_whole, write_feedback
from gapft_harness.demo import find_code_policy, find_policy
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.sandbox import Program, Sandbox, Test
from gapft_harness.verification.programs import last_program, read_suite

TASKS = Path(__file__).resolve().parents[2] / "tasks"
SPLITS: tuple[Split, ...] = ("pretrain", "tuning", "pool", "audit")
splits, seeds = st.sampled_from(SPLITS), st.integers(0, 10_000)

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
def shipped_tokenizer(bundled: Bundled) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(bundled.folder)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1) as running:
        yield running


def load_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


# Problems


@settings(max_examples=40, deadline=None)
@given(
    bundled=st.sampled_from([*BUNDLED.values()]),
    first=splits,
    second=splits,
    seed=seeds,
    second_seed=seeds,
)
def test_splits_share_no_content(
    bundled: Bundled, first: Split, second: Split, seed: int, second_seed: int
) -> None:
    generated = bundled.demo.generate(first, 40, seed)
    assert {problem.split for problem in generated} == {first}
    others = bundled.demo.generate(second, 40, second_seed)
    contents = ({problem.content for problem in group} for group in (generated, others))
    assert first == second or not set.intersection(*contents)


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


def test_tests_accept_whole_and_reject_lazy_programs(sandbox: Sandbox) -> None:
    chosen = programs.DEMO.generate("tuning", 24, 3)
    lazy = [(problem, build_unfinished(problem)) for problem in chosen]
    lazy += [(p, build_constant(test.answer)) for p in chosen for test in p.public_tests]
    whole = [(problem, build_whole(problem)) for problem in chosen]
    results = sandbox.judge(
        [
            (
                extract_program(answer.text),
                [Test(f"{test.line}\n", f"{test.answer}\n") for test in problem.tests],
            )
            for problem, answer in whole + lazy
        ]
    )
    verdicts = [result.verdict for result in results]
    assert verdicts == ["accepted"] * len(whole) + ["wrong_answer"] * len(lazy)


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


def test_folder_is_small_float32_and_standard(bundled: Bundled, shipped_tokenizer: Any) -> None:
    model = load_model(bundled.folder)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.dtype == torch.float32
    assert bundled.policy.served_head in (None, model.config.head_dim)
    assert sum(path.stat().st_size for path in bundled.folder.iterdir()) < 2_000_000
    config = json.loads((bundled.folder / "tokenizer_config.json").read_text("utf-8"))
    # transformers 4 and 5 both know this name.
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    defaults = json.loads((bundled.folder / "generation_config.json").read_text("utf-8"))
    assert not {"do_sample", "temperature", "top_k", "top_p"} & defaults.keys()
    special = ("pad_token_id", "bos_token_id", "eos_token_id")
    ids = [getattr(shipped_tokenizer, name) for name in special]
    assert len({*ids} - {None}) == 3
    for model_config in (model.config, model.generation_config):
        assert [getattr(model_config, name) for name in special] == ids
    assert shipped_tokenizer.padding_side == "left"
    assert len(shipped_tokenizer) == model.config.vocab_size


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_decoding_restores_ascii_text(
    bundled: Bundled, shipped_tokenizer: Any, data: st.DataObject
) -> None:
    parts = st.one_of(
        st.characters(min_codepoint=32, max_codepoint=126),
        st.sampled_from([*bundled.policy.phrases, "07", "78", "100", "\n"]),
    )
    text = data.draw(st.lists(parts).map("".join))
    assert shipped_tokenizer.decode(shipped_tokenizer.encode(text)) == text
    assert shipped_tokenizer.unk_token_id in shipped_tokenizer.encode(f"{text}×")


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


def test_labels_cover_only_response_and_end() -> None:
    tokenizer = pretrain.POLICIES["demo"].build_tokenizer()
    examples = [("Find 2 +3.", r"\boxed{5}"), ("Solve 40 -1 -1 -1.", "39")]
    batch = pretrain.collate(examples, tokenizer)
    for row, (prompt, response) in enumerate(examples):
        learnt = batch["labels"][row][batch["labels"][row] != pretrain.IGNORED_LABEL]
        assert tokenizer.decode(learnt) == f"{response}</s>"
        visible = batch["input_ids"][row][batch["attention_mask"][row] == 1]
        assert tokenizer.decode(visible) == f"{prompt}{response}</s>"


@pytest.mark.parametrize("width", [26, 32, 64])
def test_widened_model_gives_the_same_logits(width: int) -> None:
    model = pretrain.build_model(pretrain.POLICIES["demo"].build_tokenizer(), seed=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # At random, logits of different tokens are nearly equal.
            parameter.mul_(8)
    ids = torch.randint(3, 202, (4, 60), generator=torch.Generator().manual_seed(1))
    wide = pretrain.widen_heads(model, width)
    assert wide.config.head_dim == width
    with torch.inference_mode():
        expected, logits = model(ids).logits, wide(ids).logits
    assert expected.std() > 1
    # Only rounding differs: float32 has seven digits.
    assert torch.allclose(expected, logits, atol=1e-4 * float(expected.abs().max()))
    assert torch.equal(expected.argmax(-1), logits.argmax(-1))
