"""Attention over concatenated sequences: each sequence attends to itself alone, without padding.

It is registered with transformers (``AttentionInterface``), so that every architecture that uses
this interface can use it. The boundaries of the sequences arrive as ``cu_seq_lens_q``, the name
that models pass on to flash attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from inspect import signature
from itertools import groupby, pairwise
from typing import Any

import torch

from gapft_harness.core.errors import UserError

#: Value of ``attn_implementation`` with which a model is loaded.
SEGMENTS = "gapft_segments"

#: Torch's kernels: for all sequences of a pass at once, or one by one.
PACKED, PER_SEQUENCE = "varlen_attn", "scaled_dot_product_attention"
#: On a CPU, the latter's backward pass is slow in 16 bits. Sequences up to this length are computed
#: by plain products instead, 2.5 to 6 times faster, and each saves a matrix of attention weights.
DENSE_LENGTH = 512
DENSE = f"products up to {DENSE_LENGTH} tokens, {PER_SEQUENCE} beyond"

_PADDING_REMEDY = "set training.padding_free: false"

#: Options of some architectures that this attention does not support.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


def register_segments() -> None:
    """Register the attention with transformers; may be called repeatedly."""
    from transformers import AttentionInterface

    AttentionInterface.register(SEGMENTS, attend)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    cu_seq_lens_q: Sequence[int] | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal attention within each sequence.

    Args:
        module: the attention layer.
        query: (1, heads, T, width); ``key`` and ``value`` may have fewer heads.
        key: see query.
        value: see query.
        attention_mask: must be None; none is built for this attention.
        scaling: factor of the scores; None: 1 / sqrt(width).
        dropout: dropout of the attention weights.
        cu_seq_lens_q: boundaries of the sequences, from 0 to T.
        sliding_window: number of tokens that a token attends back to; no sequence may be longer.
        others: further options of the architecture.

    Returns:
        Output of shape (1, T, heads, width), and None for the weights.

    Raises:
        UserError: the architecture needs an option that this attention does not support.
    """
    name = type(module).__name__
    if cu_seq_lens_q is None or attention_mask is not None:
        raise UserError(f"{name}: does not pass on the ends of sequences; {_PADDING_REMEDY}")
    if requested := [key for key in _UNSUPPORTED if others.get(key) is not None]:
        raise UserError(
            f"{name}: needs {requested[0]}, which padding-free training does not support; "
            f"{_PADDING_REMEDY}"
        )
    lengths = [end - start for start, end in pairwise(cu_seq_lens_q)]
    if sliding_window is not None and max(lengths) > sliding_window:
        raise UserError(
            f"{name}: attends back {sliding_window} tokens, but a sequence is longer; "
            f"{_PADDING_REMEDY}"
        )
    kernel = find_packed_kernel(query, value) if dropout == 0 else None
    is_dense_here = dropout == 0 and is_dense(0, query.dtype, query.device)
    by_sequence = DENSE if is_dense_here else PER_SEQUENCE
    module.gapft_kernel = by_sequence if kernel is None else PACKED  # type: ignore[assignment]
    if kernel is not None:
        return _attend_packed(kernel, query, key, value, tuple(cu_seq_lens_q), scaling), None
    # neighbours of equal length form one batch
    batches = [(len(list(alike)), length) for length, alike in groupby(lengths)]
    # split, not slices: a slice's backward pass writes a tensor of the complete length
    sizes = [rows * length for rows, length in batches]
    split_tensors = (torch.split(t[0], sizes, dim=1) for t in (query, key, value))
    parts = []
    for (rows, length), *batch_tensors in zip(batches, *split_tensors, strict=True):
        q, k, v = (t.reshape(-1, rows, length, t.shape[-1]).transpose(0, 1) for t in batch_tensors)
        if dropout == 0 and is_dense(length, query.dtype, query.device):
            part = _attend_dense(q, k, v, scaling)
        else:
            part = torch.nn.functional.scaled_dot_product_attention(
                q,
                k,
                v,
                dropout_p=dropout,
                is_causal=True,
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        parts.append(part.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).unsqueeze(0), None


def is_dense(length: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a sequence's attention is computed by plain products."""
    return device.type == "cpu" and dtype.itemsize == 2 and length <= DENSE_LENGTH


def _attend_dense(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Compute causal attention of sequences of one length, as transformers' eager attention does.

    Args:
        query: (rows, heads, length, width); ``key`` and ``value`` may have fewer heads.
        key: see query.
        value: see query.
        scaling: factor of the scores; None: 1 / sqrt(width).

    Returns:
        (rows, heads, length, width of the values).
    """
    rows, heads, length, width = query.shape
    key_heads = key.shape[1]  # query heads with the same key head are rows of one product
    grouped_query = query.reshape(rows, key_heads, -1, width) * (scaling or width**-0.5)
    scores = (grouped_query @ key.transpose(2, 3)).view(rows, key_heads, -1, length, length)
    future = torch.full((length, length), -torch.inf, dtype=query.dtype).triu(1)
    weights = (scores + future).softmax(dim=-1).view(rows, key_heads, -1, length)
    return (weights @ value).view(rows, heads, length, -1)


def describe_attention(model: Any) -> dict[str, str]:
    """Describe the attention implementation of a trained model.

    Returns:
        ``implementation`` in transformers' terms; for ``SEGMENTS`` also the ``kernel`` of its
        layers' last passes.
    """
    description = {"implementation": str(model.config._attn_implementation)}
    if kernels := {
        module.gapft_kernel for module in model.modules() if hasattr(module, "gapft_kernel")
    }:
        description["kernel"] = ", ".join(sorted(kernels))
    return description


def find_packed_kernel(query: torch.Tensor, value: torch.Tensor) -> partial[Any] | None:
    """Return torch's kernel for all sequences of a pass at once; None if it does not fit.

    It supports 16 bits on a GPU, and heads of one width that is a multiple of 8 up to 256. It was
    added in torch 2.10.
    """
    width = query.shape[-1]
    if not query.is_cuda or query.dtype.itemsize != 2:
        return None
    if width % 8 or width > 256 or value.shape[-1] != width:
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    parameters = signature(varlen_attn).parameters  # parameters differ between versions of torch
    if "scale" not in parameters:
        return None
    options: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in parameters else {}
    options |= {"window_size": (-1, 0)} if "window_size" in parameters else {"is_causal": True}
    return partial(varlen_attn, **options)


def _attend_packed(
    kernel: partial[Any],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: tuple[int, ...],
    scaling: float | None,
) -> torch.Tensor:
    on_device = _copy_ends(ends, query.device)
    longest = max(end - start for start, end in pairwise(ends))
    q, k, v = (t[0].transpose(0, 1) for t in (query, key, value))
    if "enable_gqa" not in kernel.keywords:
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
    out: torch.Tensor = kernel(q, k, v, on_device, on_device, longest, longest, scale=scaling)
    return out.unsqueeze(0)


@lru_cache(maxsize=2)
def _copy_ends(ends: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Copy the boundaries to the device once per pass, not once per layer."""
    return torch.tensor(ends, dtype=torch.int32, device=device)


def check_separation(model: Any, device: torch.device) -> None:
    """Check that the second of two concatenated sequences is independent of the first.

    Some layers that are not attention (convolutions, state-space layers) mix neighbouring positions
    in any case. The check changes the first sequence; the logits of the second must stay equal.

    Raises:
        UserError: the logits change.
    """
    from gapft_harness.training.objective import Batch, compute_logits

    length = 8
    ids = torch.arange(3, 3 + 2 * length, device=device).unsqueeze(0)
    changed_ids = torch.cat([ids[:, :length].flip(1), ids[:, length:]], dim=1)
    places = torch.arange(length, device=device).repeat(2).unsqueeze(0)
    last = torch.tensor([[0], [2 * length - 1]], device=device)
    none = torch.empty(0, device=device)
    training = model.training
    model.eval()
    with torch.no_grad():
        original_logits, changed_logits = (
            compute_logits(model, Batch(i, last, none, none, places, (0, length, 2 * length)))
            for i in (ids, changed_ids)
        )
    model.train(training)
    if not torch.allclose(
        original_logits, changed_logits, rtol=1e-3, atol=1e-3 * float(original_logits.abs().max())
    ):
        raise UserError(
            f"the model mixes concatenated sequences, so it cannot be trained without padding; "
            f"{_PADDING_REMEDY}"
        )
