"""Widen a Llama's attention heads with zeros: the same function in a shape that vLLM can serve.

The policy is trained with heads of 24 dimensions. vLLM's attention on CPU supports heads of 32
and of multiples of 16 from 64 on, so the shipped folder has heads of 32 with eight zeros.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM


def widen_heads(model: LlamaForCausalLM, width: int) -> LlamaForCausalLM:
    """Copy a model with heads of ``width`` dimensions; its logits are equal up to rounding.

    Three changes preserve the function. Rotary positions turn dimensions i and i + h/2 of a
    head of h together, so the zeros go to the end of each half. The base of their angles,
    ``theta^(-2i/h)``, is raised to ``width / h``. And queries are scaled by ``sqrt(width / h)``,
    because scores are divided by the root of the head's width.

    Args:
        model: a model with plain rotary positions and at most as many key heads as query heads.
        width: new number of dimensions of a head; even, and at least the old number.

    Raises:
        ValueError: the width is odd or less than the model's.
    """
    import torch
    from transformers import LlamaForCausalLM

    old = int(model.config.head_dim)
    if width % 2 or width < old:
        raise ValueError(f"expected an even width from {old}, found {width}")
    config = copy.deepcopy(model.config)
    config.head_dim = width
    rope = dict(config.rope_parameters)
    config.rope_parameters = rope | {"rope_theta": rope["rope_theta"] ** (width / old)}
    weights = model.state_dict()
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            wider = _pad_rows(weight, old, width)
            weights[name] = wider * math.sqrt(width / old) if "q_proj" in name else wider
        elif name.endswith("o_proj.weight"):
            weights[name] = _pad_rows(weight.T, old, width).T.contiguous()
    # All weights drawn here are replaced; the caller's random stream must not advance.
    with torch.random.fork_rng(devices=[]):
        wide = LlamaForCausalLM(config)
    wide.load_state_dict(weights)
    return wide.eval()


def _pad_rows(weight: Tensor, old: int, width: int) -> Tensor:
    """Pad (heads * old, columns) to (heads * width, columns) with zeros after each half head."""
    import torch

    halves = weight.reshape(-1, old // 2, weight.shape[1])
    zeros = halves.new_zeros(halves.shape[0], (width - old) // 2, halves.shape[2])
    return torch.cat([halves, zeros], dim=1).flatten(0, 1)
