"""The objective: cross-entropy on response tokens only (Equation 2), under a named normalisation.

The loss of an optimizer step is a weighted sum over its supervised tokens. The weights are fixed
by the step's members (``ledger.py``) before it is cut into forward passes, so no cut changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from gapft_harness.training.output_layer import kept_from, only_at
from gapft_harness.training.passes import Member
from gapft_harness.training.plan import Fitted

#: Most logits that are made at a time: 0.5 GB in float32.
LOGITS_AT_ONCE = 1 << 27


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass: rows padded on the right, or one row of sequences laid end to end.

    Attributes:
        input_ids: (rows, length); what a short row is filled up with is never read.
        positions: (2, m): row and position of the token *before* each supervised one.
        targets: (m,) the supervised ids.
        weights: (m,) each supervised token's weight in the step's loss.
        position_ids: (1, length), each sequence from 0; None where rows are padded.
        ends: where sequences end in the one row, from 0 to its length; empty where padded.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor
    position_ids: torch.Tensor | None = None
    ends: tuple[int, ...] = ()

    def to(self, device: torch.device) -> Batch:
        """The batch on another device."""
        return Batch(
            self.input_ids.to(device),
            self.positions.to(device),
            self.targets.to(device),
            self.weights.to(device),
            None if self.position_ids is None else self.position_ids.to(device),
            self.ends,
        )


def collate(members: Sequence[Member], end_id: int | None) -> Batch:
    """Pads members on the right and marks what is supervised.

    Args:
        members: those of one forward pass.
        end_id: the end-of-sequence id; needed only if a member supervises it.
    """
    rows = [_ids(member.sequence, end_id) for member in members]
    length = max(map(len, rows))
    padded = [[*row, *[row[0]] * (length - len(row))] for row in rows]
    return _batch(members, rows, padded, list(enumerate([0] * len(rows))))


def flatten(members: Sequence[Member], end_id: int | None) -> Batch:
    """Lays members end to end in one row, and marks what is supervised. See ``collate``."""
    rows = [_ids(member.sequence, end_id) for member in members]
    ends = (0, *accumulate(map(len, rows)))
    batch = _batch(
        members, rows, [list(chain.from_iterable(rows))], [(0, start) for start in ends[:-1]]
    )
    places = torch.cat([torch.arange(len(row)) for row in rows])
    return Batch(
        batch.input_ids, batch.positions, batch.targets, batch.weights, places.unsqueeze(0), ends
    )


def _batch(
    members: Sequence[Member],
    rows: Sequence[list[int]],
    input_ids: list[list[int]],
    origins: Sequence[tuple[int, int]],
) -> Batch:
    """Marks what is supervised; ``origins`` are the row and place of each sequence's first id."""
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


def weighted_loss(model: Any, batch: Batch, head_is_last: bool = False) -> torch.Tensor:
    """The forward pass's part of the step's loss, a scalar in float32.

    Of a pass with more than ``LOGITS_AT_ONCE`` logits a chunk at a time is made, forward and
    backward; the backward pass makes it again.

    Args:
        model: base and adapter.
        batch: the pass.
        head_is_last: whether logits are the output layer's output and nothing more
            (``output_layer.is_last``). If not, all are made at once in the model's dtype, by its
            own forward pass, and chunks are of their float32 copies and cross-entropy alone.
    """
    head = model.get_output_embeddings()
    rows = max(1, LOGITS_AT_ONCE // head.weight.shape[0])
    if len(batch.targets) <= rows:
        return _cross_entropy(forward_logits(model, batch), batch.targets, batch.weights)
    if head_is_last:
        with kept_from(model, batch.positions) as kept:
            _forward(model, batch)
        (inputs,), layer = kept, head
    else:
        inputs, layer = forward_logits(model, batch), torch.nn.Identity()
    parts = [
        checkpoint(_chunk_loss, layer, *part, use_reentrant=False)
        for part in zip(
            *(torch.split(t, rows) for t in (inputs, batch.targets, batch.weights)), strict=True
        )
    ]
    return torch.stack(parts).sum()


def forward_logits(model: Any, batch: Batch) -> torch.Tensor:
    """The logits at the batch's positions alone, (m, vocabulary)."""
    with only_at(model, batch.positions):
        return _forward(model, batch)[0]


def _forward(model: Any, batch: Batch) -> torch.Tensor:
    """What the model gives for logits.

    The model sees no attention mask. Padding stands on the right, so that no position that is read
    ever looks at it; sequences laid end to end are told apart by ``attention.attend``.
    """
    more: dict[str, Any] = {}
    if batch.position_ids is not None:
        more = {"position_ids": batch.position_ids, "cu_seq_lens_q": batch.ends}
    logits: torch.Tensor = model(input_ids=batch.input_ids, use_cache=False, **more).logits
    return logits


def _chunk_loss(
    layer: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    return _cross_entropy(layer(inputs.unsqueeze(0))[0], targets, weights)


def _cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    losses = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")
    return (losses * weights).sum()


def _ids(member: Fitted, end_id: int | None) -> list[int]:
    ids = [*member.prompt_ids, *member.target_ids]
    if member.eos:
        if end_id is None:
            raise ValueError(f"{member.slot} ends with an end-of-sequence token, but none is given")
        ids.append(end_id)
    return ids
