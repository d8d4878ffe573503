"""Restrict the output layer, which computes logits, to the positions that are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

#: An attention that only returns the right shape; for models without weights.
_SHAPES = "gapft_shapes"


@contextlib.contextmanager
def only_at(model: Any, positions: torch.Tensor) -> Iterator[None]:
    """Within the context, pass only the given positions to the model's output layer.

    The layer's input is gathered before the layer, so that an architecture's own treatment of
    logits (a soft cap, a scale) still follows; logits then have shape (1, m, vocabulary), and no
    memory is allocated for other positions.

    Args:
        positions: (2, m), row and position in the row.
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
    """Within the context, pass no position to the output layer, and capture its inputs.

    Args:
        positions: (2, m), row and position in the row.

    Yields:
        A list that contains the layer's input at the positions, (m, hidden size), after a forward
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
    """Return whether a model's logits are exactly the output of its output layer.

    Determined by a forward pass of the model without weights: the logits must be the layer's output
    tensor itself, neither derived from it nor modified in place (a soft cap, a scale, another
    dtype). If a model does not run without weights, the result is False.

    Args:
        meta_model: the model on the meta device (``model.build_meta_model``). Its attention is
            replaced by one that computes nothing.
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
    except Exception:  # a model may run any code; an exception here is not an error
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
