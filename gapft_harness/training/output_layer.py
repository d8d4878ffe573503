"""Where a model's hidden states become logits: at the positions asked for, and nowhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

#: An attention of the right shape that computes nothing; for models without weights.
_SHAPES = "gapft_shapes"


@contextlib.contextmanager
def only_at(model: Any, positions: torch.Tensor) -> Iterator[None]:
    """Inside, the model's output layer sees the given positions alone.

    Its input is gathered before it, so that an architecture's own treatment of logits (a soft
    cap, a scale) still follows; logits are then (1, m, vocabulary), and memory for the others'
    is never asked for.

    Args:
        positions: (2, m), rows and places.
    """
    rows, places = positions

    def gather(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (inputs[0][rows, places].unsqueeze(0), *inputs[1:])

    hook = model.get_output_embeddings().register_forward_pre_hook(gather)
    try:
        yield
    finally:
        hook.remove()


@contextlib.contextmanager
def kept_from(model: Any, positions: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Inside, the output layer sees no position at all; what it would have seen is kept.

    Args:
        positions: (2, m), rows and places.

    Yields:
        A list that holds the layer's input at the positions, (m, hidden size), after a forward
        pass.
    """
    rows, places = positions
    kept: list[torch.Tensor] = []

    def keep(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        kept.append(inputs[0][rows, places])
        return (kept[-1][:0].unsqueeze(0), *inputs[1:])

    hook = model.get_output_embeddings().register_forward_pre_hook(keep)
    try:
        yield kept
    finally:
        hook.remove()


def is_last(weightless: Any) -> bool:
    """Whether a model's logits are what its output layer gives, and nothing is done to them.

    Seen in a forward pass of the model without weights: the logits are that layer's output itself,
    not something made of it or written into it (a soft cap, a scale, another dtype). A model that
    does not run without weights is taken for one that does more.

    Args:
        weightless: the model on the meta device (``model.without_weights``). Its attention is
            exchanged for one that computes nothing.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(_SHAPES, _attend_shapes)
    given: list[tuple[torch.Tensor, int]] = []
    hook = weightless.get_output_embeddings().register_forward_hook(
        lambda _, __, output: given.append((output, output._version))
    )
    try:
        weightless.set_attn_implementation(_SHAPES)
        ids = torch.zeros(1, 2, dtype=torch.long, device="meta")
        with torch.no_grad():
            logits = weightless.eval()(input_ids=ids, use_cache=False).logits
    except Exception:  # any code may be a model's: what it raises here says nothing against it
        return False
    finally:
        hook.remove()
    output, version = given[-1]
    return logits is output and logits._version == version


def _attend_shapes(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    rows, heads, length, _width = query.shape
    return query.new_empty(rows, length, heads, value.shape[-1]), None
