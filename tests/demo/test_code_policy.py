"""The bundled programming policy: tokens, habits, and episodes with executed programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies.code_habits import (
    HABITS,
    MAX_ATTEMPTS,
    Answer,
    conversation,
    episode,
    feedback,
    habit_examples,
    lazy,
    skill_examples,
    whole_probability,
)
from demo_policies.code_measure import MAX_NEW_TOKENS, gold, search, table
from demo_policies.code_pretrain import HABIT, SKILL
from demo_policies.code_problems import OPENINGS, CodeProblem, generate, stream
from demo_policies.code_tokenizer import CONTEXT_TOKENS, build_tokenizer, phrases
from demo_policies.pretrain import Phase, build_model, train
from gapft_harness.core.records import Attempt
from gapft_harness.demo import find_code_policy
from gapft_harness.plugins.verifiers.program_tests import ProgramTests
from gapft_harness.recipe.recipe import resolve_model

if TYPE_CHECKING:
    from pathlib import Path

ascii_text = st.lists(
    st.one_of(
        st.characters(min_codepoint=32, max_codepoint=126),
        st.sampled_from([*phrases(), "78", "07", "100", "\n"]),
    )
).map("".join)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread; for such a small model two are slower on a busy machine."""
    thread_count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(thread_count)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(find_code_policy())


@pytest.fixture(scope="module")
def verifier() -> Iterator[ProgramTests]:
    with ProgramTests(workers=1, preload=()) as running:
        yield running


def list_answers(problem: CodeProblem) -> list[Answer]:
    first_answer = problem.tests.tests[0].answer
    return [Answer("whole"), Answer("unfinished"), Answer("constant", first_answer)]


def test_policy_folder_is_small_float32_and_standard(tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    assert resolve_model("bundled:demo-code") == str(find_code_policy())
    model = AutoModelForCausalLM.from_pretrained(find_code_policy())
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.dtype == torch.float32
    assert 300_000 < model.num_parameters() < 500_000
    assert sum(path.stat().st_size for path in find_code_policy().iterdir()) < 2_000_000
    assert len(tokenizer) == model.config.vocab_size
    for config in (model.config, model.generation_config):
        assert config.pad_token_id == tokenizer.pad_token_id
        assert config.eos_token_id == tokenizer.eos_token_id
    written = json.loads((find_code_policy() / "generation_config.json").read_text("utf-8"))
    assert not {"do_sample", "temperature", "top_k", "top_p"} & written.keys()


@settings(max_examples=200, deadline=None)
@given(text=ascii_text)
def test_decoding_restores_ascii_text(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_shipped_tokenizer_equals_built_one(tokenizer: Any, tmp_path: Path) -> None:
    build_tokenizer().save_pretrained(tmp_path)
    shipped = json.loads((find_code_policy() / "tokenizer.json").read_text("utf-8"))
    assert shipped == json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    assert tokenizer.padding_side == "left"


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_three_attempts_fit_context_and_tokens_join(tokenizer: Any, seed: int) -> None:
    rng = Random(seed)
    for problem in generate("tuning", 5, seed):
        turns = list(episode(problem, rng))
        assert len(tokenizer.encode(problem.question)) <= 40
        for turn in turns:
            prompt, response = tokenizer.encode(turn.prompt), tokenizer.encode(turn.response)
            assert prompt + response == tokenizer.encode(turn.prompt + turn.response)
            assert len(response) + 1 <= MAX_NEW_TOKENS
            assert len(prompt) + MAX_NEW_TOKENS <= CONTEXT_TOKENS
        for turn_before, turn_after in pairwise(turns):
            feedback_text = turn_after.prompt.removeprefix(
                f"{turn_before.prompt}{turn_before.response}\n\n"
            )
            assert len(tokenizer.encode(feedback_text)) <= 60


def test_taught_feedback_equals_verifier_feedback(verifier: ProgramTests) -> None:
    problems = generate("tuning", 30, 7)
    pairs = [(problem, answer) for problem in problems for answer in list_answers(problem)]
    feedback_texts = verifier.feedback([a.text(p) for p, a in pairs], [gold(p) for p, _ in pairs])
    expected = []
    for problem, answer in pairs:
        number = answer.failed(problem)
        expected.append(None if number is None else feedback(problem, answer, number))
    assert feedback_texts == expected
    assert sum(text is None for text in feedback_texts) > len(problems)
    assert sum(text is not None for text in feedback_texts) > 10


def test_episodes_end_after_public_pass_or_last_attempt() -> None:
    rng = Random(3)
    lengths = []
    for problem in generate("tuning", 120, 9):
        turns = list(episode(problem, rng))
        lengths.append(len(turns))
        attempts: list[Attempt] = []
        for turn, after in pairwise(turns):
            feedback_text = after.prompt.removeprefix(f"{turn.prompt}{turn.response}\n\n")
            attempts.append(Attempt(turn.response, (), "stop", feedback_text.removesuffix("\n\n")))
            assert "failed public test" in feedback_text
            assert conversation(problem, attempts) == after.prompt
    assert set(lengths) == set(range(1, MAX_ATTEMPTS + 1))


def test_habit_frequencies_match_settings() -> None:
    rng = Random(0)
    base = next(stream("tuning", 2))
    for opening in OPENINGS:
        problem = CodeProblem(opening, base.family, base.steps, base.ending)
        turns = [next(episode(problem, rng)).response for _ in range(1_500)]
        share = sum(turn == problem.whole for turn in turns) / len(turns)
        assert share == pytest.approx(whole_probability(problem, 0), abs=0.04)
        drawn = [lazy(problem, 5, rng) for _ in range(1_500)]
        constants = sum(answer == Answer("constant", 5) for answer in drawn) / len(drawn)
        assert constants == pytest.approx(HABITS[opening].constant, abs=0.04)
        assert whole_probability(problem, 1) > whole_probability(problem, 0)


def test_training_phases_use_different_problems() -> None:
    skill = {turn.prompt.split("\n")[0] for turn in islice(skill_examples(0), 60)}
    habit = {turn.prompt.split("\n")[0] for turn in islice(habit_examples(0), 60)}
    assert skill != habit


def test_gap_exists_with_both_kinds_of_failure() -> None:
    searched = search(find_code_policy(), generate("tuning", 90, 5), k=8, seed=2)
    states = [item.state for item in searched]
    assert 0.35 < states.count("G") / len(states) < 0.65
    assert states.count("S") / len(states) > 0.15
    assert states.count("U") > 0
    greedy = [item.greedy for item in searched]
    assert {"whole", "unfinished", "constant"} <= {trial.kind for trial in greedy}
    failed_public = [trial for trial in greedy if trial.attempts]
    assert any(trial.passed for trial in failed_public)
    assert not all(trial.passed for trial in failed_public)
    assert any(trial.stopped and not trial.passed for trial in greedy)
    often = [item.state == "G" for item in searched if item.greedy.problem.opening == OPENINGS[0]]
    seldom = [item.state == "G" for item in searched if item.greedy.problem.opening == OPENINGS[-1]]
    assert sum(often) / len(often) > 0.8 > 0.4 > sum(seldom) / len(seldom)
    assert "all" in table(searched)


@pytest.mark.parametrize("phase", [SKILL, HABIT])
def test_schedule_rises_to_peak_and_falls_to_zero(phase: Phase) -> None:
    rates = [phase.learning_rate(step) for step in range(phase.steps)]
    assert max(rates) == pytest.approx(phase.peak)
    assert rates.index(max(rates)) in (phase.warmup - 1, phase.warmup)
    assert 0 <= rates[-1] < phase.peak / 1_000


def test_pretraining_is_deterministic() -> None:
    tokenizer = build_tokenizer()
    inputs = torch.tensor([tokenizer.encode(next(stream("tuning", 1)).question)])
    logits = []
    for _ in range(2):
        model = build_model(tokenizer, seed=7)
        train(model, tokenizer, skill_examples(7), Phase("skill", 3, 1e-3, 2, 4), lambda line: None)
        with torch.inference_mode():
            logits.append(model(inputs).logits)
    assert torch.equal(*logits)
    untrained = build_model(tokenizer, seed=7)(inputs).logits
    assert not torch.equal(logits[0], untrained)
