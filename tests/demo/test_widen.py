"""Wider attention heads: a different shape, the same function."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from demo_policies.pretrain import SERVED_HEAD, build_model
from demo_policies.tokenizer import build_tokenizer
from demo_policies.widen import widen_heads
from gapft_harness.demo import find_policy


@pytest.fixture(scope="module")
def narrow_model() -> Any:
    """Build a model whose logits differ clearly between tokens; at random they are nearly equal."""
    model = build_model(build_tokenizer(), seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model.eval()


@pytest.mark.parametrize("width", [24, 26, 32, 64])
def test_widened_model_gives_same_logits(narrow_model: Any, width: int) -> None:
    ids = torch.randint(3, 202, (4, 60), generator=torch.Generator().manual_seed(1))
    wide = widen_heads(narrow_model, width)
    assert wide.config.head_dim == width
    with torch.inference_mode():
        expected, logits = narrow_model(ids).logits, wide(ids).logits
    assert expected.std() > 1
    # Only rounding differs: float32 has seven digits.
    assert torch.allclose(expected, logits, atol=1e-4 * float(expected.abs().max()))
    assert torch.equal(expected.argmax(-1), logits.argmax(-1))


def test_shipped_policy_has_served_width() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(find_policy())
    assert model.config.head_dim == SERVED_HEAD
    for layer in model.model.layers:
        rows = layer.self_attn.v_proj.weight.unflatten(0, (-1, SERVED_HEAD // 2))
        assert rows[:, 12:].abs().max() == 0 < rows[:, :12].abs().max()
