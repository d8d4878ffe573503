"""Restrict the output layer, which computes logits, to the positions that are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

#: An attention that only returns the right shape; for models without weights.
_SHAPE_ATTENTION = "gapft_shapes"


@contextlib.contextmanager
def gather_inputs(
    model: Any, positions: torch.Tensor, *, has_output: bool
) -> Iterator[list[torch.Tensor]]:
    """Within the context, gather the output layer's inputs at the given positions.

    They are gathered before the layer, so that no memory is allocated for other positions, and an
    architecture's own treatment of logits (a soft cap, a scale) still follows.

    Args:
        model: the model.
        positions: (2, m), row and position in the row.
        has_output: whether the layer gets them, so that logits have shape (1, m, vocabulary);
            otherwise it gets no position.

    Yields:
        A list that contains the inputs, (m, hidden size), after a forward pass.
    """
    rows, places = positions
    gathered: list[torch.Tensor] = []

    def gather(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        device = inputs[0].device  # a base that is spread over GPUs ends on another one
        gathered.append(inputs[0][rows.to(device), places.to(device)])
        passed = gathered[-1] if has_output else gathered[-1][:0]
        return (passed.unsqueeze(0), *inputs[1:])

    hook = model.get_output_embeddings().register_forward_pre_hook(gather)
    try:
        yield gathered
    finally:
        hook.remove()


def is_output_layer_last(meta_model: Any) -> bool:
    """Return whether a model's logits are exactly the output of its output layer.

    Determined by a forward pass of the model without weights: the logits must be the layer's output
    tensor itself, neither derived from it nor modified in place (a soft cap, a scale, another
    dtype). If a model does not run without weights, the result is False.

    Args:
        meta_model: the model on the meta device (``model.build_meta_model``). Its attention is
            replaced by one that computes nothing.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(_SHAPE_ATTENTION, _attend_shapes)
    outputs: list[tuple[torch.Tensor, int]] = []
    hook = meta_model.get_output_embeddings().register_forward_hook(
        lambda _, __, output: outputs.append((output, output._version))
    )
    try:
        meta_model.set_attn_implementation(_SHAPE_ATTENTION)
        ids = torch.zeros(1, 2, dtype=torch.long, device="meta")
        with torch.no_grad():
            logits = meta_model.eval()(input_ids=ids, use_cache=False).logits
    except Exception:  # a model may run any code; an exception here is not an error
        return False
    finally:
        hook.remove()
    output, version = outputs[-1]
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
