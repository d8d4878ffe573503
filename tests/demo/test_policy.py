"""The bundled policies: they load like any model and behave as their model cards describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies import (
    code_habits,
    code_pretrain,
    code_problems,
    code_tokenizer,
    pretrain,
    problems,
    tokenizer,
)
from demo_policies.code_habits import Answer, feedback
from demo_policies.code_problems import CodeProblem
from demo_policies.code_tokenizer import phrases
from demo_policies.pretrain import IGNORED_LABEL, Example, Phase, build_model, train
from demo_policies.problems import VERBS
from gapft_harness.demo import find_code_policy, find_policy
from gapft_harness.plugins.verifiers.program_tests import ProgramTests


@dataclass(frozen=True)
class Policy:
    """A bundled policy: its folder, its problems, and what it was trained with."""

    folder: Path
    problems: ModuleType
    training: ModuleType
    build_tokenizer: Callable[[], Any]
    phases: tuple[Phase, Phase]


POLICIES = {
    "arithmetic": Policy(
        find_policy(), problems, pretrain, tokenizer.build_tokenizer,
        (pretrain.SKILL, pretrain.HABIT),
    ),
    "programs": Policy(
        find_code_policy(), code_problems, code_habits, code_tokenizer.build_tokenizer,
        (code_pretrain.SKILL, code_pretrain.HABIT),
    ),
}  # fmt: skip

# A printable character, alone or in the phrases that have a token of their own.
ascii_text = st.lists(
    st.one_of(
        st.characters(min_codepoint=32, max_codepoint=126),
        st.sampled_from([*VERBS, *phrases(), "By eye; ", r"\boxed{78}", "; ", "07", "100", "\n"]),
    )
).map("".join)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread; for such a small model two are slower on a busy machine."""
    thread_count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(thread_count)


@pytest.fixture(scope="module", params=POLICIES)
def policy(request: pytest.FixtureRequest) -> Policy:
    return POLICIES[request.param]


@pytest.fixture(scope="module")
def shipped_tokenizer(policy: Policy) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(policy.folder)


def load_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


# Both policies


def test_folder_is_small_float32_and_standard(policy: Policy, shipped_tokenizer: Any) -> None:
    model = load_model(policy.folder)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.dtype == torch.float32
    assert 300_000 < model.num_parameters() < 500_000
    assert sum(path.stat().st_size for path in policy.folder.iterdir()) < 2_000_000
    config = json.loads((policy.folder / "tokenizer_config.json").read_text("utf-8"))
    # transformers 4 and 5 both know this name.
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    defaults = json.loads((policy.folder / "generation_config.json").read_text("utf-8"))
    assert not {"do_sample", "temperature", "top_k", "top_p"} & defaults.keys()
    special = ("pad_token_id", "bos_token_id", "eos_token_id")
    ids = [getattr(shipped_tokenizer, name) for name in special]
    assert len({*ids} - {None}) == 3
    for model_config in (model.config, model.generation_config):
        assert [getattr(model_config, name) for name in special] == ids
    assert shipped_tokenizer.padding_side == "left"
    assert len(shipped_tokenizer) == model.config.vocab_size


@settings(max_examples=200, deadline=None)
@given(text=ascii_text)
def test_decoding_restores_ascii_text(shipped_tokenizer: Any, text: str) -> None:
    assert shipped_tokenizer.decode(shipped_tokenizer.encode(text)) == text
    assert shipped_tokenizer.unk_token_id in shipped_tokenizer.encode(f"{text}×")


def test_shipped_tokenizer_equals_built_one(policy: Policy, tmp_path: Path) -> None:
    policy.build_tokenizer().save_pretrained(tmp_path)
    shipped, built = (
        json.loads((folder / "tokenizer.json").read_text("utf-8"))
        for folder in (policy.folder, tmp_path)
    )
    assert shipped == built


def test_pretraining_is_deterministic_and_saved(policy: Policy, tmp_path: Path) -> None:
    own_tokenizer = policy.build_tokenizer()
    question = next(policy.problems.stream("tuning", 1)).question
    inputs = torch.tensor([own_tokenizer.encode(question)])
    logits = []
    for attempt in range(2):
        lines: list[str] = []
        model = build_model(own_tokenizer, seed=7)
        steps = Phase("skill", 5, 1e-3, 2, 4)
        train(model, own_tokenizer, policy.training.skill_examples(7), steps, lines.append)
        assert lines[0].startswith("skill 5/5 loss ")
        pretrain.save(model, own_tokenizer, tmp_path / str(attempt))
        with torch.inference_mode():
            logits += [model(inputs).logits, load_model(tmp_path / str(attempt))(inputs).logits]
    assert all(torch.equal(logits[0], other) for other in logits[1:])
    untrained = build_model(own_tokenizer, seed=7)(inputs).logits
    assert not torch.equal(logits[0], untrained)


def test_labels_cover_only_response_and_end() -> None:
    own_tokenizer = tokenizer.build_tokenizer()
    examples = [Example("Find 2 +3.", r"\boxed{5}"), Example("Solve 40 -1 -1 -1.", "39")]
    batch = pretrain.collate(examples, own_tokenizer)
    for row, example in enumerate(examples):
        learnt = batch["labels"][row][batch["labels"][row] != IGNORED_LABEL]
        assert own_tokenizer.decode(learnt) == f"{example.response}</s>"
        visible = batch["input_ids"][row][batch["attention_mask"][row] == 1]
        assert own_tokenizer.decode(visible) == f"{example.prompt}{example.response}</s>"


# Arithmetic


@pytest.fixture(scope="module")
def arithmetic() -> tuple[Any, Any]:
    """Return the model and its tokenizer."""
    from transformers import AutoTokenizer

    return load_model(find_policy()), AutoTokenizer.from_pretrained(find_policy())


# Programs


def test_taught_feedback_equals_verifier_feedback() -> None:
    chosen = code_problems.generate("tuning", 30, 7)
    pairs = [(problem, answer) for problem in chosen for answer in list_answers(problem)]
    with ProgramTests(workers=1, preload=()) as verifier:
        feedback_texts = verifier.feedback(
            [answer.text(problem) for problem, answer in pairs],
            [gold(problem) for problem, _ in pairs],
        )
    expected = []
    for problem, answer in pairs:
        number = answer.failed(problem)
        expected.append(None if number is None else feedback(problem, answer, number))
    assert feedback_texts == expected
    assert sum(text is None for text in feedback_texts) > len(chosen)
    assert sum(text is not None for text in feedback_texts) > 10


def gold(problem: CodeProblem) -> dict[str, object]:
    """Return the gold that the task gives the verifier."""
    record = problem.record()
    return {name: record[name] for name in ("kind", "function", "tests", "public")}


def list_answers(problem: CodeProblem) -> list[Answer]:
    first_answer = problem.tests.tests[0].answer
    return [Answer("whole"), Answer("unfinished"), Answer("constant", first_answer)]
