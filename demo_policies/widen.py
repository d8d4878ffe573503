"""Widens a Llama's attention heads with zeros: the same function in a shape that vLLM can serve.

The policy is trained with heads of 24 dimensions. vLLM's attention on CPU knows heads of 32 and of
multiples of 16 from 64 on, so the shipped folder has heads of 32, eight of them zeros.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM


def widen_heads(model: LlamaForCausalLM, width: int) -> LlamaForCausalLM:
    """A copy of a model whose heads have ``width`` dimensions; its logits are equal up to rounding.

    Three things keep the function as it was. Rotary positions turn dimensions i and i + h/2 of a
    head of h together, so the zeros go to the end of each half. The base of their angles,
    ``theta^(-2i/h)``, is raised to ``width / h``. And queries are scaled by ``sqrt(width / h)``,
    since scores are divided by the root of the head's width.

    Args:
        model: one with plain rotary positions and as many key heads as query heads, or fewer.
        width: new dimensions of a head; even, and no less than the old.

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
    # The weights drawn here are all replaced; the caller's random stream stays where it is.
    with torch.random.fork_rng(devices=[]):
        wide = LlamaForCausalLM(config)
    wide.load_state_dict(weights)
    return wide.eval()


def _pad_rows(weight: Tensor, old: int, width: int) -> Tensor:
    """(heads * old, columns) to (heads * width, columns): zeros at the end of each half head."""
    import torch

    halves = weight.reshape(-1, old // 2, weight.shape[1])
    zeros = halves.new_zeros(halves.shape[0], (width - old) // 2, halves.shape[2])
    return torch.cat([halves, zeros], dim=1).flatten(0, 1)
