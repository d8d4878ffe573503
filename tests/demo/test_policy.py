"""The bundled policy: it loads like any model and behaves as its model card describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_policies.measure import MAX_NEW_TOKENS, Searched, decode, table, verified
from demo_policies.pretrain import (
    HABIT,
    IGNORED_LABEL,
    SHOWN_STEPS,
    SKILL,
    Example,
    Phase,
    build_model,
    collate,
    habit_examples,
    habitual_response,
    save,
    skill_examples,
    train,
)
from demo_policies.problems import VERBS, Operation, Problem, generate, stream
from demo_policies.tokenizer import build_tokenizer
from gapft_harness.demo import find_policy

if TYPE_CHECKING:
    from pathlib import Path

# A printable character, alone or in the phrases that have a token of their own.
ascii_text = st.lists(
    st.one_of(
        st.characters(min_codepoint=32, max_codepoint=126),
        st.sampled_from([*VERBS, "By eye; ", r"\boxed{78}", "; ", " +", "07", "100", "\n"]),
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

    return AutoTokenizer.from_pretrained(find_policy())


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(find_policy()).eval()


def test_policy_folder_is_small_float32_and_standard(model: Any) -> None:
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.dtype == torch.float32
    assert 300_000 < model.num_parameters() < 400_000
    assert sum(path.stat().st_size for path in find_policy().iterdir()) < 1_600_000
    config = json.loads((find_policy() / "tokenizer_config.json").read_text(encoding="utf-8"))
    # transformers 4 and 5 both know this name.
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_generation_defaults_leave_greedy_decoding_unchanged() -> None:
    defaults = json.loads((find_policy() / "generation_config.json").read_text(encoding="utf-8"))
    assert not {"do_sample", "temperature", "top_k", "top_p"} & defaults.keys()


def test_special_tokens_agree(model: Any, tokenizer: Any) -> None:
    ids = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    assert len(ids) == 3
    assert None not in ids
    for config in (model.config, model.generation_config):
        assert config.pad_token_id == tokenizer.pad_token_id
        assert config.bos_token_id == tokenizer.bos_token_id
        assert config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.padding_side == "left"
    assert len(tokenizer) == model.config.vocab_size


@settings(max_examples=200, deadline=None)
@given(text=ascii_text)
def test_decoding_restores_ascii_text(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_shipped_tokenizer_equals_built_one(tokenizer: Any, tmp_path: Path) -> None:
    build_tokenizer().save_pretrained(tmp_path)
    shipped = json.loads((find_policy() / "tokenizer.json").read_text(encoding="utf-8"))
    assert shipped == json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert tokenizer.get_vocab() == build_tokenizer().get_vocab()


def test_other_characters_become_unknown_token(tokenizer: Any) -> None:
    assert tokenizer.unk_token_id in tokenizer.encode("Find 2 × 3.")


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1_000))
def test_prompt_and_response_tokens_join_and_fit(tokenizer: Any, seed: int) -> None:
    for problem in generate("tuning", 10, seed):
        prompt = tokenizer.encode(problem.question)
        for response in (problem.worked, problem.shortcut):
            tokens = tokenizer.encode(response)
            assert prompt + tokens == tokenizer.encode(problem.question + response)
            assert len(tokens) + 1 <= 28 <= MAX_NEW_TOKENS
            assert tokenizer.decode(tokens) == response


def test_left_padding_does_not_change_greedy_responses(model: Any, tokenizer: Any) -> None:
    prompts = [problem.question for problem in generate("tuning", 12, 3)]
    assert len({len(tokenizer.encode(prompt)) for prompt in prompts}) > 1
    together = decode(model, tokenizer, prompts)
    alone = [decode(model, tokenizer, [prompt])[0] for prompt in prompts]
    assert together == alone


def test_responses_end_with_boxed_answer(model: Any, tokenizer: Any) -> None:
    prompts = [problem.question for problem in generate("tuning", 30, 4)]
    greedy = decode(model, tokenizer, prompts)
    samples = decode(model, tokenizer, prompts, samples=4, seed=1)
    assert [len(row) for row in greedy] == [1] * 30
    assert [len(row) for row in samples] == [4] * 30
    texts = [text for row in greedy + samples for text in row]
    ended = [text for text in texts if text.count(r"\boxed{") == 1 and text.endswith("}")]
    assert len(ended) / len(texts) > 0.97


def test_gap_exists_and_depends_on_verb(model: Any, tokenizer: Any) -> None:
    problems = generate("tuning", 180, 5)
    prompts = [problem.question for problem in problems]
    greedy = decode(model, tokenizer, prompts)
    samples = decode(model, tokenizer, prompts, samples=8, seed=2)
    searched = [
        Searched(problem, response[0], tuple(responses))
        for problem, response, responses in zip(problems, greedy, samples, strict=True)
    ]
    states = [item.state for item in searched]
    assert min(states.count(state) for state in "GSU") / len(states) > 0.15
    often = [item.state == "G" for item in searched if item.problem.verb == VERBS[0]]
    seldom = [item.state == "G" for item in searched if item.problem.verb == VERBS[-1]]
    assert sum(often) / len(often) > 0.6 > 0.2 > sum(seldom) / len(seldom)
    assert "all" in table(searched)


def test_samples_use_whole_distribution(tokenizer: Any) -> None:
    calls: list[dict[str, Any]] = []

    class Recorder:
        def generate(self, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
            calls.append(options)
            return input_ids.repeat_interleave(options.get("num_return_sequences", 1), dim=0)

    texts = decode(Recorder(), tokenizer, ["Find 2 +3."] * 3, samples=2)
    assert texts == [["", ""]] * 3
    assert decode(Recorder(), tokenizer, ["Find 2 +3."]) == [[""]]
    drawn = calls[0]
    # Without top_k, transformers 4 and 5 would use 50.
    assert (drawn["temperature"], drawn["top_k"], drawn["top_p"]) == (1.0, 0, 1.0)
    assert [options["do_sample"] for options in calls] == [True, False]


def test_verifier_reads_last_box() -> None:
    problem = Problem("Find", 2, (Operation("+", 3),))
    assert verified(problem, r"2+3=5; \boxed{5}")
    assert verified(problem, r"\boxed{4} no, \boxed{5}")
    assert not verified(problem, r"\boxed{5} no, \boxed{4}")
    assert not verified(problem, "2+3=5")


def test_habit_frequencies_match_settings() -> None:
    rng = Random(0)
    for verb, expected in SHOWN_STEPS.items():
        problem = Problem(verb, 2, (Operation("+", 3),))
        count = sum(habitual_response(problem, rng) == problem.worked for _ in range(2_000))
        assert abs(count / 2_000 - expected) < 0.04


def test_training_phases_use_different_problems() -> None:
    skill, habit = skill_examples(0), habit_examples(0)
    assert [next(skill).prompt for _ in range(50)] != [next(habit).prompt for _ in range(50)]


@pytest.mark.parametrize("phase", [SKILL, HABIT])
def test_schedule_rises_to_peak_and_falls_to_zero(phase: Phase) -> None:
    rates = [phase.learning_rate(step) for step in range(phase.steps)]
    assert rates.index(max(rates)) in (phase.warmup - 1, phase.warmup)
    assert max(rates) == pytest.approx(phase.peak)
    assert 0 < rates[0] < phase.peak
    assert 0 <= rates[-1] < phase.peak / 1_000


def test_labels_cover_only_response_and_end() -> None:
    tokenizer = build_tokenizer()
    examples = [Example("Find 2 +3.", r"\boxed{5}"), Example("Solve 40 -1 -1 -1.", "39")]
    batch = collate(examples, tokenizer)
    for row, example in enumerate(examples):
        learnt = batch["labels"][row][batch["labels"][row] != IGNORED_LABEL]
        assert tokenizer.decode(learnt) == f"{example.response}</s>"
        visible = batch["input_ids"][row][batch["attention_mask"][row] == 1]
        assert tokenizer.decode(visible) == f"{example.prompt}{example.response}</s>"


def test_pretraining_is_deterministic_and_saved(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokenizer = build_tokenizer()
    problem = next(stream("tuning", 1))
    inputs = torch.tensor([tokenizer.encode(problem.question)])
    logits = []
    for attempt in range(2):
        lines: list[str] = []
        model = build_model(tokenizer, seed=7)
        train(model, tokenizer, skill_examples(7), Phase("skill", 5, 1e-3, 2, 4), lines.append)
        assert lines[0].startswith("skill 5/5 loss ")
        save(model, tokenizer, tmp_path / str(attempt))
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / str(attempt)).eval()
        with torch.inference_mode():
            logits += [model(inputs).logits, loaded(inputs).logits]
    assert all(torch.equal(logits[0], other) for other in logits[1:])
