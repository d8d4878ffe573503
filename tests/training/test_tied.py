"""The sampler's merged model equals the saved adapter as loaded by PEFT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Adapter, Arm
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.plugins.trainers.lora import lora
from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import examples, job

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TARGETS = [
    LAYERS,
    ("lm_head",),
    ("embed_tokens",),
    ("lm_head", "embed_tokens"),
    (*LAYERS, "lm_head", "embed_tokens"),
]


def build_base_model(folder: Path, *, tied: bool) -> Path:
    write_byte_llama(folder)
    config = AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = tied
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("targets", TARGETS, ids=", ".join)
def test_merged_adapter_equals_peft_adapter(
    tmp_path: Path, tied: bool, targets: tuple[str, ...]
) -> None:
    folder = build_base_model(tmp_path / "model", tied=tied)
    training_job = job(folder, tmp_path / "adapter", examples(16), target_modules=targets)
    if tied and not set(targets) <= set(LAYERS):
        with pytest.raises(UserError, match=r"training\.target_modules: '(lm_head|embed_tokens)'"):
            lora(training_job)
        assert not training_job.output.exists()
        return
    lora(training_job)
    ids = torch.arange(3, 40).unsqueeze(0)
    arguments: dict[str, Any] = {"pretrained": str(folder), "device": "cpu", "dtype": "float32"}
    sampler = HfSampler(
        SamplerSettings("hf", arguments), Adapter(Arm("gapft", 13), str(training_job.output))
    )
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        merged = sampler._lm.model(ids).logits
        alone = base(ids).logits
        loaded = PeftModel.from_pretrained(base, str(training_job.output)).eval()(ids).logits
    assert float((loaded - alone).abs().max()) > 0.01, "it has learned something"
    torch.testing.assert_close(merged, loaded, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["all-linear", "norm", "layers"])
def test_rejects_target_that_is_not_a_layer(tmp_path: Path, target: str) -> None:
    folder = build_base_model(tmp_path / "model", tied=True)
    with pytest.raises(UserError, match=r"training\.target_modules: ") as refused:
        lora(job(folder, tmp_path / "adapter", examples(4), target_modules=[target]))
    assert "q_proj" in str(refused.value) or target == "all-linear"
    assert not (tmp_path / "adapter").exists()
