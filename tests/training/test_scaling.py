"""A scaled adapter adds alpha times its update to the base and loads like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from gapft_harness.core.errors import UserError
from gapft_harness.core.weights import weights_hash
from gapft_harness.training.adapter import scale_adapter
from tests.kit.tiny_models import write_byte_adapter

FACTS = {"condition": "gapft", "seed": 13, "scale": 0.5, "tolerance": 0.1}


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_adapter(model, tmp_path_factory.mktemp("adapter"))


def load_model(model: Path, folder: Path | None) -> Any:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    return (base if folder is None else PeftModel.from_pretrained(base, folder)).eval()


@pytest.mark.parametrize("scale", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_layer_adds_scaled_update(model: Path, adapter: Path, tmp_path: Path, scale: float) -> None:
    scale_adapter(adapter, tmp_path / "scaled", scale, FACTS)
    layers = {
        name: folder_model.base_model.model.model.layers[1].self_attn.q_proj
        for name, folder_model in (
            ("trained", load_model(model, adapter)),
            ("scaled", load_model(model, tmp_path / "scaled")),
        )
    }
    x = torch.randn(5, layers["trained"].in_features, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        base = layers["trained"].base_layer(x)
        expected = base + scale * (layers["trained"](x) - base)
        torch.testing.assert_close(layers["scaled"](x), expected, rtol=1e-5, atol=1e-6)
        assert (layers["trained"](x) - base).abs().max() > 0.1, "else this shows nothing"


def test_same_adapter_gives_same_bytes_and_facts(adapter: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        scale_adapter(adapter, tmp_path / name, 0.5, FACTS)
    a, b = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("a", "b"))
    assert a == b
    assert a["adapter_config.json"] == (adapter / "adapter_config.json").read_bytes()
    facts = json.loads(a["scaling.json"])
    assert facts == {**FACTS, "adapter_sha256": weights_hash(tmp_path / "a")}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_dora": True}, "use_dora is True"),
        ({"modules_to_save": ["lm_head"]}, r"contains the weight .*lm_head"),
        ({"bias": "lora_only"}, "bias is 'lora_only'"),
    ],
)
def test_rejects_adapter_lora_b_does_not_scale(
    model: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"], **options)).save_pretrained(
        tmp_path / "adapter"
    )
    with pytest.raises(UserError, match=message):
        scale_adapter(tmp_path / "adapter", tmp_path / "scaled", 0.5, {})
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]
