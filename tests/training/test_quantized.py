"""A base in 8 or 4 bits: trained where bitsandbytes is installed, refused elsewhere."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gapft_harness.core.errors import UserError
from gapft_harness.plugins.trainers.lora import lora
from gapft_harness.training.devices import Devices
from gapft_harness.training.model import load_base
from tests.tiny_models import write_byte_llama
from tests.training.examples import examples, job, settings

needs_bitsandbytes = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'gapft-harness[quantized]'",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("base") / "model", hidden=64)


def read_log(folder: Path, kind: str) -> list[float]:
    lines = (folder / "training_log.jsonl").read_text().splitlines()
    return [json.loads(line)[kind] for line in lines]


@needs_bitsandbytes
@pytest.mark.parametrize(
    ("bits", "stored", "padding_free"),
    [("8bit", torch.int8, False), ("4bit", torch.uint8, False), ("4bit", torch.uint8, True)],
)
def test_trains_like_dequantized_base(
    model: Path, tmp_path: Path, bits: str, stored: torch.dtype, padding_free: bool
) -> None:
    """Losses and gradients equal those of the dequantized weights in float32."""
    chosen = settings(quantize=bits)
    base = load_base({"pretrained": str(model)}, chosen)
    assert base.model.layers[0].mlp.up_proj.weight.dtype == stored
    assert base.lm_head.weight.dtype == base.model.norm.weight.dtype == torch.float32
    shape = {"padding_free": padding_free, "gradient_checkpointing": True, "repetitions": 4}
    rounded = tmp_path / "rounded"
    shutil.copytree(model, rounded)
    base.dequantize().to(torch.float32).save_pretrained(rounded)
    whole = lora(job(rounded, tmp_path / "whole", examples(12), **shape))
    lora(job(model, tmp_path / "unrounded", examples(12), **shape))
    facts = lora(job(model, tmp_path / "few", examples(12), quantize=bits, **shape))
    assert facts["settings"]["quantize"] == bits
    assert facts["versions"].keys() == {*whole["versions"], "bitsandbytes"}
    for kind in ("loss", "grad_norm"):
        few, right = read_log(tmp_path / "few", kind), read_log(tmp_path / "whole", kind)
        assert few == pytest.approx(right, rel=2e-3)
        assert few != read_log(tmp_path / "unrounded", kind)
    adapter = load_file(tmp_path / "few" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}


@needs_bitsandbytes
def test_next_arm_gets_unchanged_base(model: Path, tmp_path: Path) -> None:
    from gapft_harness.training.lora import train_together

    jobs = [
        job(model, tmp_path / str(seed), examples(12), seed, quantize="4bit") for seed in (13, 21)
    ]
    list(train_together(jobs))
    lora(job(model, tmp_path / "alone", examples(12), 21, quantize="4bit"))
    files = [tmp_path / name / "adapter_model.safetensors" for name in ("21", "alone")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_rejects_8bit_without_padding() -> None:
    with pytest.raises(ValueError, match="quantize: 8bit detects"):
        settings(quantize="8bit", padding_free=True)


def test_rejects_missing_bitsandbytes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"quantize: 8bit needs bitsandbytes, .* not installed"):
        load_base({"pretrained": str(model)}, settings(quantize="8bit"))


def test_rejects_sharding_quantized_base(model: Path) -> None:
    devices = Devices(None, torch.device("cpu"), 0, 2, is_sharded=True)
    with pytest.raises(UserError, match=r"fsdp: a base in 4bit .* cannot be sharded"):
        devices.check(settings(quantize="4bit"))


def test_rejects_dtype_unsupported_by_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's answers for such a GPU are simulated."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    devices = Devices(None, torch.device("cuda", 0), 0, 1)
    with pytest.raises(UserError, match=r"Tesla V100 .* not compute in bfloat16; .* float32"):
        devices.check(settings(dtype="bfloat16"))
    devices.check(settings(dtype="float32"))
