"""A LoRA layer on a linear layer of 16 bits: one product for the base, thin ones for the adapter.

PEFT keeps the adapter in float32 and casts the layer's whole input to it, and its output back. On
a GPU these copies take longer than the adapter's products. Here the factors are cast instead,
which are small. Products are in the base's dtype and summed in float32; the factors themselves,
their gradients and the optimizer's state stay float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch


def fuse(adapted: Any) -> int:
    """Gives every plain LoRA layer of a 16-bit linear layer this forward pass; how many.

    Layers of other kinds, quantised ones among them, keep PEFT's. Taking the adapter off takes
    this off too.

    Args:
        adapted: base and one adapter, as ``get_peft_model`` makes them.
    """
    from peft.tuners.lora import Linear

    fused = 0
    for module in adapted.modules():
        base = module.base_layer if type(module) is Linear else None
        if type(base) is torch.nn.Linear and base.weight.dtype.itemsize == 2:
            (name,) = module.active_adapters
            module.forward = partial(_forward, module, name)
            fused += 1
    return fused


def _forward(layer: Any, name: str, x: torch.Tensor) -> torch.Tensor:
    base, dropout = layer.base_layer, layer.lora_dropout[name]
    return LoraLinear.apply(  # type: ignore[no-any-return, no-untyped-call]
        x,
        base.weight,
        base.bias,
        layer.lora_A[name].weight,
        layer.lora_B[name].weight,
        layer.scaling[name],
        dropout.p if isinstance(dropout, torch.nn.Dropout) and dropout.training else 0.0,
    )


class LoraLinear(torch.autograd.Function):
    """``x W' + bias + scaling · dropout(x) A' B'``; the base's weight has no gradient.

    Of the inputs only ``x`` is kept, which other layers may share, and where dropout kept it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        scaling: float,
        dropout: float,
    ) -> torch.Tensor:
        """``x`` is (..., in); ``a`` (rank, in) and ``b`` (out, rank) are float32."""
        rows = x.reshape(-1, x.shape[-1])
        kept, mask = rows, None
        if dropout:
            kept, mask = torch.ops.aten.native_dropout(rows, dropout, True)
        low = kept @ a.to(x.dtype).T
        out = torch.nn.functional.linear(rows, weight, bias)
        out.addmm_(low, (b * scaling).to(x.dtype).T)
        ctx.save_for_backward(rows, mask, low, weight, a, b)
        ctx.scaling, ctx.inverse = scaling, 1 / (1 - dropout)
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of ``x``, ``a`` and ``b``, the latter in float32."""
        rows, mask, low, weight, a, b = ctx.saved_tensors
        shape, grad = grad.shape, grad.reshape(-1, grad.shape[-1])
        kept = rows
        if mask is not None:
            kept = torch.ops.aten.native_dropout_backward(rows, mask, ctx.inverse)
        by_low = grad @ (b * ctx.scaling).to(grad.dtype)
        of_a, of_b = _float32(by_low.T, kept), _float32(grad.T, low) * ctx.scaling
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x, thin = grad @ weight, a.to(grad.dtype)
            if mask is None:
                of_x.addmm_(by_low, thin)
            else:
                of_x.addcmul_(by_low @ thin, mask, value=ctx.inverse)
            of_x = of_x.view(*shape[:-1], -1)
        return of_x, None, None, of_a, of_b, None, None


def _float32(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The product of two 16-bit matrices in float32."""
    if one.is_cuda:
        return torch.mm(one, other, out_dtype=torch.float32)
    return one.float() @ other.float()
