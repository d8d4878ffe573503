"""The objective: cross-entropy on response tokens only (Equation 2), with a named normalization.

The loss of an optimizer step is a weighted sum over its supervised tokens. The weights are fixed by
the step's members (``ledger.py``) before it is divided into forward passes, so the division does
not change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch

from gapft_harness.training.output_layer import gather_inputs
from gapft_harness.training.passes import Member
from gapft_harness.training.plan import TrainingSequence

#: Maximum number of logits at one time, by kind of device: 64 MB and 256 MB in bfloat16. On a CPU
#: small enough to save memory, with enough rows for fast matrix products.
MAX_LOGITS = {"cpu": 1 << 25, "cuda": 1 << 27}
#: Maximum number of them that have a float32 copy at one time.
MAX_FLOAT32_LOGITS = 1 << 21


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass: rows padded on the right, or one row of concatenated sequences.

    Attributes:
        input_ids: (rows, length); padding is never read.
        positions: (2, m), row and position of the token *before* each supervised one.
        targets: (m,), the supervised ids.
        weights: (m,), each supervised token's weight in the step's loss.
        position_ids: (1, length), each sequence from 0; None if rows are padded.
        ends: boundaries of the sequences in the row, from 0 to its length; empty if padded.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    position_ids: torch.Tensor | None = None
    ends: tuple[int, ...] = ()

    def to(self, device: torch.device) -> Batch:
        """Return the batch on another device."""
        return Batch(
            self.input_ids.to(device),
            self.positions.to(device),
            self.targets.to(device),
            self.weights.to(device),
            None if self.position_ids is None else self.position_ids.to(device),
            self.ends,
        )


def collate(members: Sequence[Member], end_id: int | None) -> Batch:
    """Pad members on the right and mark the supervised tokens.

    Args:
        members: the members of one forward pass.
        end_id: the end-of-sequence id; needed only if a member supervises it.
    """
    rows = [_build_ids(member.sequence, end_id) for member in members]
    length = max(map(len, rows))
    padded = [[*row, *[row[0]] * (length - len(row))] for row in rows]
    return _build_batch(members, rows, padded, list(enumerate([0] * len(rows))))


def flatten(members: Sequence[Member], end_id: int | None) -> Batch:
    """Concatenate members in one row and mark the supervised tokens. See ``collate``."""
    rows = [_build_ids(member.sequence, end_id) for member in members]
    ends = (0, *accumulate(map(len, rows)))
    batch = _build_batch(
        members, rows, [list(chain.from_iterable(rows))], [(0, start) for start in ends[:-1]]
    )
    places = torch.cat([torch.arange(len(row)) for row in rows])
    return Batch(
        batch.input_ids, batch.positions, batch.targets, batch.weights, places.unsqueeze(0), ends
    )


def _build_batch(
    members: Sequence[Member],
    rows: Sequence[list[int]],
    input_ids: list[list[int]],
    origins: Sequence[tuple[int, int]],
) -> Batch:
    """Mark the supervised tokens; ``origins``: row and position of each sequence's first id."""
    positions: list[tuple[int, int]] = []
    targets: list[int] = []
    weights: list[float] = []
    for member, ids, (row, origin) in zip(members, rows, origins, strict=True):
        start = len(member.sequence.prompt_ids)
        positions += [(row, origin + place - 1) for place in range(start, len(ids))]
        targets += ids[start:]
        weights += [member.weight] * member.sequence.supervised
    return Batch(
        torch.tensor(input_ids),
        torch.tensor(positions).T,
        torch.tensor(targets),
        torch.tensor(weights, dtype=torch.float32),
    )


def compute_loss(model: Any, batch: Batch, is_head_last: bool = False) -> torch.Tensor:
    """Compute the forward pass's part of the step's loss, a scalar in float32.

    The output layer gets only supervised positions. With ``is_head_last``, it gets a chunk of them,
    with at most ``MAX_LOGITS`` logits, and their gradient is computed immediately, so that no
    logits are saved for the backward pass.

    Args:
        model: base and adapter.
        batch: the forward pass.
        is_head_last: whether logits are exactly the output layer's output
            (``output_layer.is_output_layer_last``). If not, the model's own forward pass computes
            the logits of all supervised positions at once, in the model's dtype.
    """
    head = model.get_output_embeddings()
    rows = max(1, find_max_logits(batch.input_ids.device) // head.weight.shape[0])
    if is_head_last:
        with gather_inputs(model, batch.positions, has_output=False) as gathered:
            _run_forward(model, batch)
        (inputs,) = gathered
        layer = head
    else:
        inputs = compute_logits(model, batch)
        layer = torch.nn.Identity()
    trained = [p for p in layer.parameters() if p.requires_grad]
    loss: torch.Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
        inputs, layer, batch.targets, batch.weights, rows, *trained
    )
    return loss


def find_max_logits(device: torch.device) -> int:
    """Return the maximum number of logits that exist at one time on a device."""
    return MAX_LOGITS["cuda" if device.type == "cuda" else "cpu"]


def compute_logits(model: Any, batch: Batch) -> torch.Tensor:
    """Compute the logits at the batch's positions alone, (m, vocabulary)."""
    with gather_inputs(model, batch.positions, has_output=True):
        return _run_forward(model, batch)[0]


def _run_forward(model: Any, batch: Batch) -> torch.Tensor:
    """Run the model and return its logits.

    The model gets no attention mask. Padding is on the right, so that no position that is read
    attends to it; ``attention.attend`` separates concatenated sequences.
    """
    more: dict[str, Any] = {}
    if batch.position_ids is not None:
        more = {"position_ids": batch.position_ids, "cu_seq_lens_q": batch.ends}
    logits: torch.Tensor = model(input_ids=batch.input_ids, use_cache=False, **more).logits
    return logits


class _HeadLoss(torch.autograd.Function):
    """The weighted cross-entropy of a layer's output, computed a few rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        layer: torch.nn.Module,
        targets: torch.Tensor,
        weights: torch.Tensor,
        rows: int,
        *trained: torch.nn.Parameter,
    ) -> torch.Tensor:
        """Compute the loss, and the gradients of ``inputs`` (m, width) and ``trained``."""
        input_gradients = torch.empty_like(inputs)
        parameter_gradients = [torch.zeros_like(parameter) for parameter in trained]
        losses = []
        parts = (torch.split(t, rows) for t in (inputs, targets, weights, input_gradients))
        for part, target, weight, part_gradients in zip(*parts, strict=True):
            with torch.enable_grad():
                leaf = part.detach().requires_grad_()
                logits = layer(leaf.unsqueeze(0))[0]
            loss, gradient = _compute_cross_entropy(
                logits.detach(), target.to(logits.device), weight.to(logits.device)
            )
            losses.append(loss)
            gradients = torch.autograd.grad(logits, (leaf, *trained), gradient)
            part_gradients.copy_(gradients[0])
            for total, more in zip(parameter_gradients, gradients[1:], strict=True):
                total += more
        ctx.save_for_backward(input_gradients, *parameter_gradients)
        return torch.stack(losses).sum().to(inputs.device)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Multiply the gradients that ``forward`` computed."""
        input_gradients, *parameter_gradients = (
            gradient * grad.to(gradient.device) for gradient in ctx.saved_tensors
        )
        return input_gradients, None, None, None, None, *parameter_gradients


def _compute_cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the weighted cross-entropy in float32, and its gradient in the logits' dtype.

    Args:
        logits: (m, vocabulary); copied to float32 a few rows at a time.
        targets: (m,)
        weights: (m,)
    """
    gradient = torch.empty_like(logits)
    rows = max(1, MAX_FLOAT32_LOGITS // logits.shape[1])
    losses = []
    parts = (torch.split(t, rows) for t in (logits, targets.unsqueeze(1), weights, gradient))
    for part, target, weight, part_gradients in zip(*parts, strict=True):
        log_probabilities = part.float().log_softmax(dim=1)
        losses.append((-log_probabilities.gather(1, target).squeeze(1) * weight).sum())
        weighted_probabilities = log_probabilities.exp_().mul_(weight.unsqueeze(1))
        part_gradients.copy_(weighted_probabilities.scatter_add_(1, target, -weight.unsqueeze(1)))
    return torch.stack(losses).sum(), gradient


def _build_ids(member: TrainingSequence, end_id: int | None) -> list[int]:
    ids = [*member.prompt_ids, *member.target_ids]
    if member.eos:
        if end_id is None:
            raise ValueError(
                f"{member.slot} ends with an end-of-sequence token, but end_id is None"
            )
        ids.append(end_id)
    return ids
