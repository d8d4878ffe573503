"""The bundled policies: they load like any model and behave as their model cards describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies import (
    code_habits,
    code_measure,
    code_pretrain,
    code_problems,
    code_tokenizer,
    measure,
    pretrain,
    problems,
    tokenizer,
)
from demo_policies.code_habits import HABITS, Answer, conversation, episode, feedback, lazy
from demo_policies.code_problems import OPENINGS, CodeProblem
from demo_policies.code_tokenizer import CONTEXT_TOKENS, phrases
from demo_policies.pretrain import IGNORED_LABEL, SHOWN_STEPS, Example, Phase, build_model, train
from demo_policies.problems import VERBS, Operation, Problem
from gapft_harness.core.records import Attempt
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


def test_training_phases_use_different_problems(policy: Policy) -> None:
    skill, habit = (
        {turn.prompt.split("\n")[0] for turn in islice(examples(0), 60)}
        for examples in (policy.training.skill_examples, policy.training.habit_examples)
    )
    assert skill != habit


def test_schedules_rise_to_peak_and_fall_to_zero(policy: Policy) -> None:
    for phase in policy.phases:
        rates = [phase.learning_rate(step) for step in range(phase.steps)]
        assert rates.index(max(rates)) in (phase.warmup - 1, phase.warmup)
        assert max(rates) == pytest.approx(phase.peak)
        assert 0 <= rates[-1] < phase.peak / 1_000


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


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_prompt_and_response_tokens_join_and_fit(arithmetic: tuple[Any, Any], seed: int) -> None:
    _, own_tokenizer = arithmetic
    for problem in problems.generate("tuning", 10, seed):
        prompt = own_tokenizer.encode(problem.question)
        for response in (problem.worked, problem.shortcut):
            tokens = own_tokenizer.encode(response)
            assert prompt + tokens == own_tokenizer.encode(problem.question + response)
            assert len(tokens) + 1 <= 28 <= measure.MAX_NEW_TOKENS


def test_left_padding_does_not_change_greedy_responses(arithmetic: tuple[Any, Any]) -> None:
    prompts = [problem.question for problem in problems.generate("tuning", 12, 3)]
    assert len({len(arithmetic[1].encode(prompt)) for prompt in prompts}) > 1
    together = measure.decode(*arithmetic, prompts)
    assert together == [measure.decode(*arithmetic, [prompt])[0] for prompt in prompts]


def test_gap_exists_and_depends_on_verb(arithmetic: tuple[Any, Any]) -> None:
    chosen = problems.generate("tuning", 180, 5)
    prompts = [problem.question for problem in chosen]
    greedy = measure.decode(*arithmetic, prompts)
    samples = measure.decode(*arithmetic, prompts, samples=8, seed=2)
    texts = [text for row in greedy + samples for text in row]
    ended = [text for text in texts if text.count(r"\boxed{") == 1 and text.endswith("}")]
    assert len(ended) / len(texts) > 0.97
    searched = [
        measure.Searched(problem, response[0], tuple(responses))
        for problem, response, responses in zip(chosen, greedy, samples, strict=True)
    ]
    states = [item.state for item in searched]
    assert min(states.count(state) for state in "GSU") / len(states) > 0.15
    often = [item.state == "G" for item in searched if item.problem.verb == VERBS[0]]
    seldom = [item.state == "G" for item in searched if item.problem.verb == VERBS[-1]]
    assert sum(often) / len(often) > 0.6 > 0.2 > sum(seldom) / len(seldom)
    assert "all" in measure.table(searched)


def test_samples_use_whole_distribution() -> None:
    calls: list[dict[str, Any]] = []

    class Recorder:
        def generate(self, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
            calls.append(options)
            return input_ids.repeat_interleave(options.get("num_return_sequences", 1), dim=0)

    own_tokenizer = tokenizer.build_tokenizer()
    texts = measure.decode(Recorder(), own_tokenizer, ["Find 2 +3."] * 3, samples=2)
    assert texts == [["", ""]] * 3
    # Without top_k, transformers 4 and 5 would use 50.
    drawn = calls[0]
    assert (drawn["temperature"], drawn["top_k"], drawn["top_p"]) == (1.0, 0, 1.0)


def test_habit_frequencies_match_settings() -> None:
    rng = Random(0)
    for verb, expected in SHOWN_STEPS.items():
        problem = Problem(verb, 2, (Operation("+", 3),))
        count = sum(
            pretrain.habitual_response(problem, rng) == problem.worked for _ in range(2_000)
        )
        assert abs(count / 2_000 - expected) < 0.04
    base = next(code_problems.stream("tuning", 2))
    for opening in OPENINGS:
        request = CodeProblem(opening, base.family, base.steps, base.ending)
        turns = [next(episode(request, rng)).response for _ in range(1_500)]
        share = sum(turn == request.whole for turn in turns) / len(turns)
        assert share == pytest.approx(code_habits.whole_probability(request, 0), abs=0.04)
        drawn = [lazy(request, 5, rng) for _ in range(1_500)]
        constants = sum(answer == Answer("constant", 5) for answer in drawn) / len(drawn)
        assert constants == pytest.approx(HABITS[opening].constant, abs=0.04)


# Programs


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_three_attempts_fit_context_and_tokens_join(seed: int) -> None:
    rng, own_tokenizer = Random(seed), code_tokenizer.build_tokenizer()
    for problem in code_problems.generate("tuning", 5, seed):
        turns = list(episode(problem, rng))
        assert len(own_tokenizer.encode(problem.question)) <= 40
        for turn in turns:
            prompt, response = (
                own_tokenizer.encode(turn.prompt),
                own_tokenizer.encode(turn.response),
            )
            assert prompt + response == own_tokenizer.encode(turn.prompt + turn.response)
            assert len(response) + 1 <= code_measure.MAX_NEW_TOKENS
            assert len(prompt) + code_measure.MAX_NEW_TOKENS <= CONTEXT_TOKENS
        for before, after in pairwise(turns):
            feedback_text = after.prompt.removeprefix(f"{before.prompt}{before.response}\n\n")
            assert len(own_tokenizer.encode(feedback_text)) <= 60


def test_taught_feedback_equals_verifier_feedback() -> None:
    chosen = code_problems.generate("tuning", 30, 7)
    pairs = [(problem, answer) for problem in chosen for answer in list_answers(problem)]
    with ProgramTests(workers=1, preload=()) as verifier:
        feedback_texts = verifier.feedback(
            [answer.text(problem) for problem, answer in pairs],
            [code_measure.gold(problem) for problem, _ in pairs],
        )
    expected = []
    for problem, answer in pairs:
        number = answer.failed(problem)
        expected.append(None if number is None else feedback(problem, answer, number))
    assert feedback_texts == expected
    assert sum(text is None for text in feedback_texts) > len(chosen)
    assert sum(text is not None for text in feedback_texts) > 10


def list_answers(problem: CodeProblem) -> list[Answer]:
    first_answer = problem.tests.tests[0].answer
    return [Answer("whole"), Answer("unfinished"), Answer("constant", first_answer)]


def test_episodes_end_after_public_pass_or_last_attempt() -> None:
    rng = Random(3)
    lengths = []
    for problem in code_problems.generate("tuning", 120, 9):
        turns = list(episode(problem, rng))
        lengths.append(len(turns))
        attempts: list[Attempt] = []
        for turn, after in pairwise(turns):
            feedback_text = after.prompt.removeprefix(f"{turn.prompt}{turn.response}\n\n")
            attempts.append(Attempt(turn.response, (), "stop", feedback_text.removesuffix("\n\n")))
            assert conversation(problem, attempts) == after.prompt
    assert set(lengths) == set(range(1, code_habits.MAX_ATTEMPTS + 1))


@pytest.mark.thorough
def test_gap_exists_with_both_kinds_of_failure() -> None:
    chosen = code_problems.generate("tuning", 90, 5)
    searched = code_measure.search(find_code_policy(), chosen, k=8, seed=2)
    states = [item.state for item in searched]
    assert 0.35 < states.count("G") / len(states) < 0.65
    assert states.count("S") / len(states) > 0.15
    assert states.count("U") > 0
    greedy = [item.greedy for item in searched]
    assert {"whole", "unfinished", "constant"} <= {trial.kind for trial in greedy}
    failed_public = [trial for trial in greedy if trial.attempts]
    assert 0 < sum(trial.passed for trial in failed_public) < len(failed_public)
    assert any(trial.stopped and not trial.passed for trial in greedy)
    often = [item.state == "G" for item in searched if item.greedy.problem.opening == OPENINGS[0]]
    seldom = [item.state == "G" for item in searched if item.greedy.problem.opening == OPENINGS[-1]]
    assert sum(often) / len(often) > 0.8 > 0.4 > sum(seldom) / len(seldom)
    assert "all" in code_measure.table(searched)
