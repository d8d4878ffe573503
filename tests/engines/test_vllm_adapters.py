"""Adapters and generation settings of models on vLLM, with random byte-level models."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Adapter, Arm, Decoding
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import check_adapter
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.text import build_instances
from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

GREEDY_DECODE = Decoding(do_sample=False, max_gen_toks=12)
SAMPLED = Decoding(True, 60, (), 2.0, 1.0, 0)
PROMPTS = ["Why?", "What is 2 + 2?\nAnswer:", "Name a colour of the sky.", "ä ö ü €", "x" * 300]
REQUESTS = [make_request(f"p{i}", prompt, (GREEDY,)) for i, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with heads of 32 dimensions, the CPU engine's minimum; start tokens are added."""
    folder = tmp_path_factory.mktemp("byte-llama")
    template = CHAT_TEMPLATE + "{% if enable_thinking is false %}<think></think>{% endif %}"
    write_byte_llama(folder, hidden=128, chat_template=template, add_bos=True)
    # A setting that transformers would apply, and another end token.
    opinions = {"eos_token_id": [2, 77], "repetition_penalty": 5.0, "temperature": 0.01}
    (folder / "generation_config.json").write_text(json.dumps(opinions))
    return folder


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    return random_adapter(model, tmp_path_factory.mktemp("adapter"))


def random_adapter(model: Path, folder: Path, rank: int = 12, **config: Any) -> Adapter:
    """Write a LoRA adapter for all linear layers, like a trained one, with large weights."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    config = {"r": rank, "target_modules": modules, "init_lora_weights": False} | config
    base = LlamaForCausalLM.from_pretrained(model)
    get_peft_model(base, LoraConfig(**config)).save_pretrained(folder)
    return Adapter(Arm("gapft", 13), str(folder))


def build_settings(model: Path, backend: str = "vllm", **args: Any) -> SamplerSettings:
    device = {} if backend == "vllm" else {"device": "cpu"}
    model_args = {"pretrained": str(model), "dtype": "float32", "max_length": 512} | device | args
    return SamplerSettings(backend, model_args)


@pytest.fixture(scope="module")
def served(model: Path, adapter: Adapter) -> Iterator[VllmSampler]:
    engine = VllmSampler(build_settings(model), adapter)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def merged(model: Path, adapter: Adapter) -> HfSampler:
    return HfSampler(build_settings(model, "hf"), adapter)


def test_served_adapter_matches_lm_eval_with_peft(
    model: Path, adapter: Adapter, served: VllmSampler, merged: HfSampler, tmp_path: Path
) -> None:
    from lm_eval.api.registry import get_model

    without_opinions = shutil.copytree(model, tmp_path / "model")
    (without_opinions / "generation_config.json").write_text('{"eos_token_id": [2, 77]}')
    with_peft = get_model("hf").create_from_arg_obj(
        {**build_settings(without_opinions, "hf").model_args, "peft": adapter.path, "batch_size": 1}
    )
    lm_eval_texts = with_peft.generate_until(
        build_instances(REQUESTS, PROMPTS, GREEDY_DECODE), disable_tqdm=True
    )
    ours = generate_all(served, REQUESTS, GREEDY_DECODE, 0)
    assert [answer.generations[0].text for answer in ours] == lm_eval_texts
    assert ours == generate_all(merged, REQUESTS, GREEDY_DECODE, 0)
    source = generate_all(HfSampler(build_settings(model, "hf"), None), REQUESTS, GREEDY_DECODE, 0)
    assert all(a.generations != b.generations for a, b in zip(ours, source, strict=True))


def test_rank_limit_comes_from_the_adapter(served: VllmSampler) -> None:
    assert served._lm.model.llm_engine.vllm_config.lora_config.max_lora_rank == 16
    facts = served.describe()["adapter"]
    assert facts["arm"] == "gapft-seed13"
    assert facts["merged"] is False
    assert len(facts["weights_sha256"]) == 64


def test_generation_config_affects_only_ends(served: VllmSampler, merged: HfSampler) -> None:
    facts = served.describe()
    assert facts["generation_config_ignored"] == {"repetition_penalty": "5.0"}
    assert facts["end_ids"] == merged.describe()["end_ids"] == [2, 77]
    samples = generate_all(served, [replace(REQUESTS[0], indices=tuple(range(64)))], SAMPLED, 0)
    generations = samples[0].generations
    assert "stop" in {g.finish_reason for g in generations}
    assert not any({2, 77} & set(g.token_ids) for g in generations)


# Unsuitable adapters; no engine starts


def test_rejects_adapter_without_a_layer(tmp_path: Path, model: Path) -> None:
    from safetensors.torch import load_file, save_file

    adapter = random_adapter(model, tmp_path / "adapter")
    weights = load_file(Path(adapter.path) / "adapter_model.safetensors")
    del weights["base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"]
    save_file(weights, Path(adapter.path) / "adapter_model.safetensors")
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.up_proj\.lora_B\.weight"):
        VllmSampler(build_settings(model), adapter)


def test_rejects_non_adapters_and_high_ranks(tmp_path: Path, model: Path, adapter: Adapter) -> None:
    arm = Arm("gapft", 13)
    with pytest.raises(UserError, match=r"gapft-seed13.*adapter_config\.json"):
        VllmSampler(build_settings(model), Adapter(arm, str(tmp_path)))
    broken = shutil.copytree(adapter.path, tmp_path / "broken")
    (broken / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="gapft-seed13"):
        VllmSampler(build_settings(model), Adapter(arm, str(broken)))
    high = random_adapter(model, tmp_path / "high", rank=513)
    with pytest.raises(UserError, match=r"513.*512"):
        VllmSampler(build_settings(model), high)


def test_highest_adapter_rank_counts(tmp_path: Path, model: Path) -> None:
    adapter = random_adapter(model, tmp_path, rank=4, rank_pattern={"q_proj": 40})
    assert check_adapter(adapter, {"pretrained": str(model)}) == 40
