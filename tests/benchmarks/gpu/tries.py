"""Alternative ways to compute the step: ``tests.benchmarks.gpu --tries``.

Each changes one thing, so that the table shows its effect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from gapft_harness.training import attention
from gapft_harness.training.model import fuse_lora_layers
from tests.benchmarks.gpu.ways import Way


@contextlib.contextmanager
def use_kernel_per_sequence(cudnn: bool) -> Iterator[None]:
    """Use one kernel per sequence of a pass, from cuDNN or from torch."""
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    with patch.object(attention, "find_packed_kernel", lambda query: None):
        yield
    torch.backends.cuda.enable_cudnn_sdp(False)


def compile_layers(model: Any) -> None:
    """Compile norms and MLP, including adapters, with torch.compile."""
    fuse_lora_layers(model)
    for layer in model.get_base_model().model.layers:
        for part in (layer.mlp, layer.input_layernorm, layer.post_attention_layernorm):
            part.compile(dynamic=True)


_without_padding = partial(Way, {"padding_free": True})
_fused = partial(Way, {"padding_free": True, "kernels": "fused"})

TRIES = {
    "a kernel a sequence, cuDNN's": _without_padding(inside=partial(use_kernel_per_sequence, True)),
    "a kernel a sequence, torch's": _without_padding(
        inside=partial(use_kernel_per_sequence, False)
    ),
    "fused kernels, a kernel a sequence": _fused(inside=partial(use_kernel_per_sequence, False)),
    "fused kernels, padded 2 x 8": Way({"kernels": "fused"}),
    "fused LoRA without Liger, padding-free": _without_padding(on_adapted=fuse_lora_layers),
    "fused LoRA, compiled, padding-free": _without_padding(on_adapted=compile_layers),
}
