"""Model folders of the hf sampler, and lm-eval's models that return text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, GenerationConfig, LlamaForCausalLM

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Decoding
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.text import (
    dummy_sampler,
)
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

SHORT = Decoding(do_sample=False, max_gen_toks=12)
PROMPTS = ["Why?", "What is 2 + 2?\nAnswer:", "Name a colour of the sky.", "ä ö ü €"]
REQUESTS = [make_request(f"p{i}", prompt, (GREEDY, 0, 1)) for i, prompt in enumerate(PROMPTS)]


def build_settings(folder: Path, **changes: Any) -> SamplerSettings:
    arguments = {"pretrained": str(folder), "dtype": "float32", "device": "cpu", "batch_size": 4}
    return SamplerSettings("hf", arguments, **changes)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("byte-llama"), chat_template=CHAT_TEMPLATE)


# Unusable folders


def update_json(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | values))


def resize_vocabulary(folder: Path, size: int) -> None:
    llama = LlamaForCausalLM.from_pretrained(folder)
    llama.resize_token_embeddings(size)
    llama.save_pretrained(folder)


def change_template(folder: Path, template: str | None) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    if template is None:
        (folder / "chat_template.jinja").unlink()


def remove_ends(folder: Path) -> None:
    update_json(folder / "tokenizer_config.json", eos_token=None)
    for name in ("config.json", "generation_config.json"):
        update_json(folder / name, eos_token_id=None)


CHAT = {"chat_template": True}
INSTRUCTED = {"chat_template": True, "system_instruction": "Be brief."}
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ messages[0]['content'] }}"
)

NO_ANSWER = (
    "{% if messages[-1]['role'] != 'user' %}{{ raise_exception('no answer') }}{% endif %}"
    "{{ messages[0]['content'] }}"
)

#: By fault: how to create it, the settings, and two words that the error must contain.
UNUSABLE: dict[str, tuple[Callable[[Path], object], dict[str, Any], str, str]] = {
    "a template that raises": (
        lambda folder: change_template(folder, "{{ messages[0]['content'] + 1 }}"),
        CHAT, "model.chat_template", "str",
    ),
    "a template without a system turn": (
        lambda folder: change_template(folder, NO_SYSTEM), INSTRUCTED, "system", "no system",
    ),
    "a template without an assistant's turn": (
        lambda folder: change_template(folder, NO_ANSWER), CHAT, "model.chat_template", "no answer",
    ),
    "no template": (lambda folder: change_template(folder, None), CHAT, "chat_template", ""),
    "an instruction without a template": (
        lambda folder: None, {"system_instruction": "Be brief."}, "model.chat_template", "",
    ),
    "no end token": (remove_ends, {}, "pretrained", "eos_token"),
    "ids beyond the vocabulary": (
        lambda folder: resize_vocabulary(folder, 200), {}, "model.args", "200",
    ),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(), {}, "model.args", "safetensors",
    ),
    "no start token": (
        lambda folder: update_json(folder / "tokenizer_config.json", bos_token=None),
        {"start_tokens": 2}, "start_tokens", "broken",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", UNUSABLE)
def test_unusable_model_is_refused(tmp_path: Path, fault: str) -> None:
    damage, settings, *culprits = UNUSABLE[fault]
    folder = write_byte_llama(tmp_path / "broken", chat_template=CHAT_TEMPLATE)
    damage(folder)
    with pytest.raises(UserError) as refused:
        generate_all(HfSampler(build_settings(folder, **settings), None), REQUESTS, SHORT)
    assert all(culprit in str(refused.value) for culprit in culprits)


def test_template_that_leaves_out_a_begun_answer_is_refused(tmp_path: Path) -> None:
    template = CHAT_TEMPLATE.replace(
        "{% for message in messages %}",
        "{% for message in messages if message['role'] != 'assistant' %}",
    )
    folder = write_byte_llama(tmp_path / "model", chat_template=template)
    sampler = HfSampler(build_settings(folder, chat_template=True), None)
    assert generate_all(sampler, REQUESTS, SHORT)
    turns = ({"role": "user", "content": "Why?"}, {"role": "assistant", "content": "It is"})
    begun = [make_request("p0", "Why? It is", (GREEDY,), turns=turns)]
    with pytest.raises(UserError, match="gen_prefix"):
        generate_all(sampler, begun, SHORT)


def test_vocabulary_may_be_larger_than_the_tokenizer(tmp_path: Path) -> None:
    folder = write_byte_llama(tmp_path / "model")
    resize_vocabulary(folder, 320)
    [answer, *_] = generate_all(HfSampler(build_settings(folder), None), REQUESTS, SHORT)
    assert answer.generations[0].token_ids


# What decides results


def test_only_ends_of_the_generation_config_count(tmp_path: Path, model: Path) -> None:
    folder = write_byte_llama(tmp_path / "opinionated")
    GenerationConfig(
        do_sample=True, temperature=0.01, top_k=1, min_p=0.9, repetition_penalty=5.0,
        eos_token_id=[2, 77], pad_token_id=0,
    ).save_pretrained(folder)  # fmt: skip
    other = HfSampler(build_settings(folder), None)
    notes: list[str] = []
    other.generate(REQUESTS, SHORT, lambda _, __, note="": notes.append(note))
    assert "repetition_penalty" in notes[0]
    facts = other.describe()
    assert facts["generation_config_ignored"] == {"min_p": "0.9", "repetition_penalty": "5.0"}
    assert facts["end_ids"] == [2, 77]
    plain = HfSampler(build_settings(model), None)
    for decoding in (SHORT, replace(SHORT, do_sample=True, temperature=0.9)):
        pairs = zip(
            generate_all(other, REQUESTS, decoding), generate_all(plain, REQUESTS, decoding),
            strict=True,
        )  # fmt: skip
        for ours, expected in pairs:
            for got, want in zip(ours.generations, expected.generations, strict=True):
                ids = want.token_ids
                assert got.token_ids == (ids[: ids.index(77)] if 77 in ids else ids)


@pytest.mark.parametrize("prompt", ["Why?", "<s>Why?"])
def test_start_token_is_added_as_in_lm_eval(tmp_path: Path, prompt: str) -> None:
    """It comes before a text, unless the text begins with one; responses have none."""
    folder = write_byte_llama(tmp_path / "model", add_bos=True)
    encode = AutoTokenizer.from_pretrained(folder)
    dummy = dummy_sampler(SamplerSettings("dummy", {"pretrained": str(folder)}), None)
    for sampler in (HfSampler(build_settings(folder), None), dummy):
        [answer] = generate_all(sampler, [make_request("p", prompt, (GREEDY,))], SHORT)
        assert list(answer.prompt_ids) == encode("Why?").input_ids
        assert answer.prompt_ids[0] == 1
    [generation] = answer.generations
    assert [1, *generation.token_ids] == encode("lol").input_ids
