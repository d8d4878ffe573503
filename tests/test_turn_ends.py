"""The supervised end of a response is the token with which the model ends a turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from gapft_harness.core.records import Decoding, Gold, Problem, Verdict
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import SamplerSettings, SearchedPool, TaskVerifier
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training import grpo
from gapft_harness.training.model import load_end_token
from tests.chat_models import CHATML, KINDS, write_chat_model
from tests.kit.tiny_models import CHAT_TEMPLATE
from tests.training.examples import examples, job


def find_token_id(folder: Path, token: str) -> int:
    return int(AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(token))


def sampler_settings(folder: Path, **changes: Any) -> SamplerSettings:
    arguments = {"pretrained": str(folder), "device": "cpu", "dtype": "float32", "batch_size": 4}
    return SamplerSettings("hf", arguments, **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_training_and_generation_share_the_end(tmp_path: Path, kind: str) -> None:
    """It is the turn's end with a chat template, else the tokenizer's."""
    folder = write_chat_model(tmp_path / "model", kind)
    *_, eos, own, turn_end = KINDS[kind]
    for chat, end in ((True, turn_end), (False, eos)):
        end_token = load_end_token({"pretrained": str(folder)}, chat_template=chat)
        assert (end_token.text, end_token.id) == (end, find_token_id(folder, end))
        settings = sampler_settings(folder, chat_template=chat)
        ends = HfSampler(settings, None).describe()["end_ids"]
        assert set(ends) == {find_token_id(folder, token) for token in (eos, *own, end)}
        assert (end_token.id in Retokenizer(settings).special_ids([])) == chat


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, CHATML.replace("<|im_end|>", "")])
def test_template_ending_in_whitespace_keeps_eos(tmp_path: Path, template: str) -> None:
    folder = write_chat_model(tmp_path / "model", "Gemma", template)
    end_token = load_end_token({"pretrained": str(folder)}, chat_template=True)
    assert end_token.text == "<eos>"


@pytest.mark.parametrize("kind", ["Gemma", "Llama-3"])
def test_adapter_records_and_learns_its_end_token(tmp_path: Path, kind: str) -> None:

    folder = write_chat_model(tmp_path / "model", kind)
    end = KINDS[kind][4]
    losses = {}
    for chat in (True, False):
        training_job = job(folder, tmp_path / f"chat {chat}", examples(4))
        facts = lora(replace(training_job, chat_template=chat))
        written = json.loads((training_job.output / "training.json").read_text())
        expected = end if chat else KINDS[kind][2]
        assert (facts["end_token"], facts["end_id"]) == (expected, find_token_id(folder, expected))
        assert written["end_id"] == facts["end_id"]
        losses[chat] = facts["first_loss"]
    assert losses[True] != losses[False]


class EverySecond:
    """A verifier that passes every second response, and remembers all."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        self.judged += responses
        return [Verdict("fail" if number % 2 else "pass") for number in range(len(responses))]


def test_online_responses_end_with_the_turn_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_chat_model(tmp_path / "model", "Gemma")
    seen: list[Any] = []
    train = grpo._MaskingTrainer.train

    every_second = EverySecond()

    def record_trainer(trainer: Any) -> Any:
        seen.append(trainer.generation_config.eos_token_id)
        ids = [problem.id for problem in pool.problems]
        trainer._compute_rewards(ids, ["so e<end_of_turn>", "so e"])
        assert {*every_second.judged} == {"so e"}, "TRL keeps an end that is not special"
        return train(trainer)

    monkeypatch.setattr(grpo._MaskingTrainer, "train", record_trainer)
    name, params = "contains", {"word": "e"}
    verifier = TaskVerifier(name, params, lambda **_: Judge(every_second))
    chosen = examples(2)
    pool = SearchedPool(
        problems=[Problem(e.problem_id, "?", "e") for e in chosen],
        prompt_ids={e.problem_id: e.prompt_ids for e in chosen},
        decoding=Decoding(True, 4, (), 1.0, 1.0, 0),
        verifier=verifier,
        states={e.problem_id: "S" for e in chosen},
    )
    online_job = job(
        folder, tmp_path / "online", chosen, trainer="grpo", update_groups=1,
        grpo={"prompts_per_update": 1, "group_size": 2},
    )  # fmt: skip
    facts = grpo.train_grpo(replace(online_job, searched=pool, chat_template=True))
    end = find_token_id(folder, "<end_of_turn>")
    assert [set(ends) for ends in seen] == [{end, find_token_id(folder, "<eos>")}]
    assert (facts["end_id"], facts["end_token"]) == (end, "<end_of_turn>")
