"""Adapters and generation settings of models on vLLM, with random byte-level models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Adapter, Arm, Decoding
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import check_adapter
from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
from tests.asking import generate_all, make_request
from tests.kit.tiny_models import write_byte_adapter, write_byte_llama

SAMPLED = Decoding(True, 60, (), 2.0, 1.0, 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with heads of 32 dimensions, the CPU engine's minimum."""
    folder = tmp_path_factory.mktemp("byte-llama")
    write_byte_llama(folder, hidden=128)
    # A setting that transformers would apply, and another end token.
    opinions = {"eos_token_id": [2, 77], "repetition_penalty": 5.0, "temperature": 0.01}
    (folder / "generation_config.json").write_text(json.dumps(opinions))
    return folder


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    return build_adapter(model, tmp_path_factory.mktemp("adapter"), rank=12)


def build_adapter(model: Path, folder: Path, rank: int) -> Adapter:
    return Adapter(Arm("gapft", 13), str(write_byte_adapter(model, folder, rank)))


def build_settings(model: Path) -> SamplerSettings:
    model_args = {"pretrained": str(model), "dtype": "float32", "max_length": 512}
    return SamplerSettings("vllm", model_args)


@pytest.fixture(scope="module")
def served(model: Path, adapter: Adapter) -> Iterator[VllmSampler]:
    engine = VllmSampler(build_settings(model), adapter)
    yield engine
    engine.close()


def test_generation_config_affects_only_ends(served: VllmSampler) -> None:
    facts = served.describe()
    assert facts["generation_config_ignored"] == {"repetition_penalty": "5.0"}
    assert facts["end_ids"] == [2, 77]
    samples = generate_all(served, [make_request("p0", "Why?", range(64))], SAMPLED, 0)
    generations = samples[0].generations
    assert "stop" in {g.finish_reason for g in generations}
    assert not any({2, 77} & set(g.token_ids) for g in generations)


# Unsuitable adapters; no engine starts


def test_rejects_adapter_without_a_layer(tmp_path: Path, model: Path) -> None:
    from safetensors.torch import load_file, save_file

    adapter = build_adapter(model, tmp_path, rank=12)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    del weights["base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"]
    save_file(weights, tmp_path / "adapter_model.safetensors")
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.down_proj\.lora_B\.weight"):
        VllmSampler(build_settings(model), adapter)


def test_rejects_high_ranks(tmp_path: Path, model: Path) -> None:
    with pytest.raises(UserError, match=r"513.*512"):
        VllmSampler(build_settings(model), build_adapter(model, tmp_path, rank=513))


def test_highest_adapter_rank_counts(tmp_path: Path, model: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    config = LoraConfig(r=4, rank_pattern={"q_proj": 40}, target_modules=["q_proj", "v_proj"])
    get_peft_model(LlamaForCausalLM.from_pretrained(model), config).save_pretrained(tmp_path)
    adapter = Adapter(Arm("gapft", 13), str(tmp_path))
    assert check_adapter(adapter, {"pretrained": str(model)}) == 40
