"""Unusable models are rejected before generation, with recipe key and remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, LlamaForCausalLM

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Decoding, Problem
from gapft_harness.hooks.protocols import (
    Generated,
    ReportGeneration,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.stages.generation.generation import build_greedy_phase, divide_into_chunks
from gapft_harness.stages.generation.stored_files import StoredResponses
from tests.asking import generate_all, make_request
from tests.generated import generate_missing, read_response_files
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama
from tests.test_generation import SeededSampler

SHORT = Decoding(do_sample=False, max_gen_toks=6)


def build_sampler(folder: Path, *, chat_template: bool = False) -> HfSampler:
    arguments = {"pretrained": str(folder), "dtype": "float32", "device": "cpu", "batch_size": 4}
    return HfSampler(SamplerSettings("hf", arguments, chat_template=chat_template), None)


def update_json(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | values))


def resize_vocabulary(folder: Path, size: int) -> None:
    model = LlamaForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(size)
    model.save_pretrained(folder)


def raise_in_template(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{{ messages[0]['content'] + 1 }}"
    tokenizer.save_pretrained(folder)


def remove_ends(folder: Path) -> None:
    update_json(folder / "tokenizer_config.json", eos_token=None)
    for name in ("config.json", "generation_config.json"):
        update_json(folder / name, eos_token_id=None)


def rename_architecture(folder: Path) -> None:
    update_json(
        folder / "config.json", model_type="nonesuch", architectures=["NonesuchForCausalLM"]
    )


#: By fault: how to create it, and the key and the value that the message names.
BAD: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a template that raises": (raise_in_template, "model.chat_template", "str"),
    "no end token": (remove_ends, "model.args: pretrained", "eos_token"),
    "an unknown architecture": (rename_architecture, "model.args: cannot load", "nonesuch"),
    "ids beyond the vocabulary": (
        lambda folder: resize_vocabulary(folder, 200),
        "model.args",
        "200 entries",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_error_names_key(tmp_path: Path, fault: str) -> None:
    damage, key, value = BAD[fault]
    folder = write_byte_llama(tmp_path / "model", chat_template=CHAT_TEMPLATE)
    damage(folder)
    with pytest.raises(UserError) as refused:
        build_sampler(folder, chat_template=fault == "a template that raises")
    assert key in str(refused.value)
    assert value in str(refused.value)


def test_accepts_vocabulary_larger_than_tokenizer(tmp_path: Path) -> None:
    folder = write_byte_llama(tmp_path / "model")
    resize_vocabulary(folder, 320)
    [answer] = generate_all(build_sampler(folder), [make_request("p", "Why?", (GREEDY,))], SHORT, 0)
    assert answer.generations[0].token_ids


class NarrowSampler(SeededSampler):
    """Generate for some problems; all other prompts exceed the context."""

    def __init__(self, fits: Sequence[str]) -> None:
        super().__init__()
        self._fits = fits

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        answers = super().generate(requests, decoding, report)
        return [
            answer if request.problem_id in self._fits else beyond_context(request)
            for request, answer in zip(requests, answers, strict=True)
        ]


def test_rejects_prompts_beyond_context(tmp_path: Path) -> None:
    problems = [Problem(f"p{number}", "?", "gold") for number in range(10)]

    def search(name: str, *fits: str) -> StoredResponses:
        return generate_missing(
            tmp_path / name, problems, [build_greedy_phase(SHORT)], NarrowSampler(fits), chunk=8
        )

    with pytest.raises(UserError, match=r"search\.max_gen_toks"):
        search("none")
    assert not read_response_files(tmp_path / "none"), "a failed search keeps nothing"
    fits = divide_into_chunks(problems, 8)[0][3].id
    entries = search("one", fits).read([problem.id for problem in problems])
    assert [len(entry.responses) for entry in entries] == [1] * 10, "one prompt that fits is enough"
