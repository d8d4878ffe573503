"""Kernels: valid requests, and fused layers equal to PEFT's. GPUs are simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Training
from gapft_harness.training.model import (
    LoraLinear,
    _apply_dropout,
    add_lora,
    fuse_lora_layers,
    remove_lora,
)

FUSED = Training(kernels="fused")


def test_fused_kernels_require_16_bit_base() -> None:
    with pytest.raises(ValidationError, match="kernels: fused needs"):
        Training(kernels="fused", dtype="float32")


def test_fused_layers_match_peft_and_are_removed(model: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    settings = Training(dropout=0.0)
    ids = torch.arange(3, 40).unsqueeze(0)
    alone = base(ids).logits
    results: list[list[torch.Tensor]] = []
    for with_fused in (False, True):
        adapted = add_lora(base, settings, 1)
        if with_fused:
            assert fuse_lora_layers(adapted) == 7 * base.config.num_hidden_layers
        factors = [p for p in adapted.parameters() if p.requires_grad]
        torch.manual_seed(2)
        for factor in factors:
            factor.data.normal_(std=0.1)
        logits = adapted(ids).logits.float()
        logits.logsumexp(-1).sum().backward()
        results.append([logits.detach(), *(p.grad for p in factors if p.grad is not None)])
        remove_lora(adapted, settings)
    assert len(results[0]) == len(results[1]) == 1 + 14 * base.config.num_hidden_layers
    for plain, fused in zip(*results, strict=True):
        assert 0 < (plain - fused).norm() < 0.05 * plain.norm()
    assert torch.equal(base(ids).logits, alone)


def test_rejects_model_without_fusible_layers(model: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with pytest.raises(UserError, match=r"no LoRA layer of this model.*kernels: plain"):
        add_lora(base, FUSED, 1)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_fused_layer_has_output_and_gradients_of_plain_lora(
    dtype: torch.dtype, tolerance: float, dropout: float
) -> None:
    """The plain computation in float32 has the mask that the layer draws."""
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((2, 20, 32), (16, 32), (16,)))
    inputs = [
        x.requires_grad_(),
        torch.randn(4, 32).requires_grad_(),
        torch.randn(16, 4).requires_grad_(),
    ]
    upstream = torch.randn(2, 20, 16)
    torch.manual_seed(1)
    out = LoraLinear.apply(x, weight, bias, *inputs[1:], 2.0, dropout)  # type: ignore[no-untyped-call]
    out.backward(upstream.to(dtype))
    torch.manual_seed(1)
    dropped_input = _apply_dropout(x.detach(), dropout)[0] if dropout else x.detach()
    mask = dropped_input.float() / x.detach().float()
    exact = [tensor.detach().float().requires_grad_() for tensor in inputs]
    plain = torch.nn.functional.linear(exact[0], weight.float(), bias.float())
    plain = plain + (exact[0] * mask) @ exact[1].T @ exact[2].T * 2.0
    plain.backward(upstream)
    actual = [out, *(tensor.grad for tensor in inputs)]
    for tensor, expected in zip(actual, [plain, *(tensor.grad for tensor in exact)], strict=True):
        assert (tensor - expected).norm() <= tolerance * expected.norm()
