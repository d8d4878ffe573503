"""The hf sampler's decode loop: texts as in lm-eval for every architecture, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.api.registry import get_model
from transformers import AutoConfig, AutoModelForCausalLM

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import GREEDY, Decoding
from gapft_harness.hooks.protocols import Generated, Request, SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.text import build_instances
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import write_byte_llama

GREEDY_DECODE = Decoding(False, 40)
SAMPLED = Decoding(True, 40, (), 0.9, 0.9)

SHARED = "Solve this: the quick brown fox. "
PROMPTS = [
    SHARED + own
    for own in ("Why?", "What is 2 + 2?\nAnswer:", "Name a colour of the sky, and of the sea.", "a")
]

#: Sizes of a model of any architecture, with the vocabulary of ``byte_llama``.
TINY = {
    "vocab_size": 259, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

#: Architectures with settings: rotary, learned or ALiBi positions; shared and separate key-value
#: heads; windows that are long enough; experts; softcapped logits.
REPEATED: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "bloom": {"n_layer": 2, "n_head": 4},
    "gemma2": {"head_dim": 8, "sliding_window": 512, "query_pre_attn_scalar": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
#: Architectures without a repeated prompt cache: a short window, a recurrent state, ALiBi slopes by
#: batch position.
TOGETHER: dict[str, dict[str, Any]] = {
    "gemma3_text": {"head_dim": 8, "sliding_window": 16, "query_pre_attn_scalar": 8},
    "mamba": {"state_size": 8},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512},
}
#: Architectures that cannot compute in float64. The others do, where texts are compared with those
#: of lm-eval, so that no rounding of a CPU's kernels decides between two tokens.
FLOAT32 = ("bloom", "gemma2", "mixtral", "mpt")


def write_model(folder: Path, name: str) -> Path:
    """Write a random model of an architecture; large weights make responses differ."""
    write_byte_llama(folder)
    settings = {**TINY, **(REPEATED | TOGETHER)[name]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **settings))
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
    model.save_pretrained(folder)
    return folder


def build_sampler(folder: Path, **args: Any) -> HfSampler:
    args = {"pretrained": str(folder), "dtype": "float32", "device": "cpu"} | args
    return HfSampler(SamplerSettings("hf", args), None)


def build_requests(prompts: Sequence[str], *indices: int) -> list[Request]:
    return [make_request(f"p{place}", prompt, indices) for place, prompt in enumerate(prompts)]


def list_texts(answers: Sequence[Generated]) -> list[list[str]]:
    return [[generation.text for generation in answer.generations] for answer in answers]


def decode_with_lm_eval(
    folder: Path, prompts: Sequence[str], decoding: Decoding, size: int, dtype: str = "float32"
) -> list[str]:
    """Decode greedily with lm-eval."""
    lm = get_model("hf").create_from_arg_obj(
        {"pretrained": str(folder), "dtype": dtype, "device": "cpu", "batch_size": size}
    )
    instances = build_instances(build_requests(prompts, GREEDY), prompts, decoding)
    texts: list[str] = lm.generate_until(instances, disable_tqdm=True)
    return texts


def read_notes(sampler: HfSampler, requests: Sequence[Request], decoding: Decoding) -> list[str]:
    """Generate, and return the notes reported meanwhile."""
    notes: list[str] = []

    def report(finished: int, tokens: int, note: str = "") -> None:
        notes.extend([note] if note else [])

    sampler.generate(requests, decoding, report)
    return notes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("model"))


# Agreement with lm-eval


@pytest.mark.parametrize("name", [*REPEATED, *TOGETHER])
def test_decodes_as_lm_eval(tmp_path: Path, name: str) -> None:
    folder, dtype = write_model(tmp_path, name), "float32" if name in FLOAT32 else "float64"
    sampler = build_sampler(folder, batch_size=3, dtype=dtype)
    greedy_texts = list_texts(generate_all(sampler, build_requests(PROMPTS, GREEDY), GREEDY_DECODE))
    assert [text for [text] in greedy_texts] == decode_with_lm_eval(
        folder, PROMPTS, GREEDY_DECODE, 3, dtype
    )
    samples = generate_all(sampler, build_requests(PROMPTS, *range(5)), SAMPLED)
    assert len({text for row in list_texts(samples) for text in row}) > 5
    if name in ("mamba", "mpt"):
        assert sampler._loop.reason
        assert sampler._loop.reason in sampler.describe()["prompt_cache"]
    else:
        assert sampler.describe()["prompt_cache"] == "repeated"
        sampler._loop.reason = "as if it were not repeated"
        assert generate_all(sampler, build_requests(PROMPTS, *range(5)), SAMPLED) == samples


# Memory


def limit_memory(sampler: HfSampler, rows: int, error: Exception) -> None:
    """Simulate a device with memory for a few rows, and its error."""

    def refuse(module: Any, args: Any, kwargs: Any) -> None:
        if len(kwargs["input_ids"]) > rows:
            raise error

    sampler._lm.model.register_forward_pre_hook(refuse, with_kwargs=True)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"
        ),
        MemoryError(),
    ],
)
def test_halves_batch_beyond_memory(model: Path, error: Exception) -> None:
    requests = build_requests(PROMPTS, GREEDY, *range(8))
    expected = generate_all(build_sampler(model), requests, SAMPLED)
    sampler = build_sampler(model, batch_size=16)
    limit_memory(sampler, 3, error)
    notes = read_notes(sampler, requests, SAMPLED)
    assert len(notes) == 3, "from 16 to 8, to 4, to 2, and never again"
    assert all("batch_size" in note for note in notes)
    assert read_notes(sampler, requests, SAMPLED) == []
    assert generate_all(sampler, requests, SAMPLED) == expected


def test_rejects_response_beyond_memory(model: Path) -> None:
    sampler = build_sampler(model)
    limit_memory(sampler, 0, MemoryError())
    with pytest.raises(GapftError, match=r"max_gen_toks"):
        generate_all(sampler, build_requests(PROMPTS, 0, 1), SAMPLED)


def test_batch_size_may_be_chosen_automatically(model: Path) -> None:
    requests = build_requests(PROMPTS, *range(8))
    expected = generate_all(build_sampler(model), requests, SAMPLED)
    assert generate_all(build_sampler(model, batch_size="auto"), requests, SAMPLED) == expected
