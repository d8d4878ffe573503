"""Changes to the step that are to be tried on a GPU, one beside the other. None is in the product.

A change that wins by what ``python -m tests.benchmarks.gpu --tries`` measures may move there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from inspect import signature
from itertools import pairwise
from typing import Any

import torch

from gapft_harness.training.base import attention
from tests.benchmarks.gpu.lora_linear import fuse
from tests.benchmarks.gpu.ways import Way


@contextlib.contextmanager
def packed_attention() -> Iterator[None]:
    """One kernel for all sequences of a pass, by torch's ``varlen_attn``; 16 bits on a GPU."""
    kept, attention.attend = attention.attend, _attend
    try:
        yield
    finally:
        attention.attend = kept


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: Sequence[int] = (),
    **_: Any,
) -> tuple[torch.Tensor, None]:
    from torch.nn.attention.varlen import varlen_attn

    ends = _on_device(tuple(cu_seq_lens_q), query.device)
    longest = max(end - start for start, end in pairwise(cu_seq_lens_q))
    q, k, v = (t[0].transpose(0, 1) for t in (query, key, value))
    known = signature(varlen_attn).parameters.keys()  # its arguments differ between versions
    more: dict[str, Any] = {"enable_gqa": True}
    if "enable_gqa" not in known:
        more = {}
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
    more |= {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    if "scale" in known:
        more["scale"] = scaling
    out: torch.Tensor = varlen_attn(q, k, v, ends, ends, longest, longest, **more)
    return out.unsqueeze(0), None


@lru_cache(maxsize=2)
def _on_device(ends: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Every layer of a pass asks for the same: a copy for each would make the device wait."""
    return torch.tensor(ends, dtype=torch.int32, device=device)


def liger(model: Any) -> None:
    """RMSNorm, SwiGLU and RoPE by Liger's kernels (``pip install liger-kernel``)."""
    from liger_kernel.transformers import apply_liger_kernel_to_llama

    plain = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    apply_liger_kernel_to_llama(rope=True, rms_norm=True, swiglu=True, model=model, **plain)


def compiled(model: Any) -> None:
    """Norms and MLP, adapters included, through torch.compile."""
    for layer in model.model.layers:
        for part in (layer.mlp, layer.input_layernorm, layer.post_attention_layernorm):
            part.compile(dynamic=True)


_without_padding = partial(Way, {"padding_free": True})
_packed = partial(_without_padding, within=packed_attention)

TRIES = {
    "fused LoRA, padded 2 x 8": Way(on_adapted=fuse),
    "fused LoRA, padding-free": _without_padding(on_adapted=fuse),
    "packed attention, padding-free": _packed(),
    "packed attention, fused LoRA": _packed(on_adapted=fuse),
    "packed attention, fused LoRA, Liger": _packed(on_adapted=fuse, on_base=liger),
    "packed attention, fused LoRA, compiled": _packed(on_adapted=fuse, on_base=compiled),
}
