"""The objective: cross-entropy on response tokens only (Equation 2), under a named normalisation.

The loss of an optimizer step is a weighted sum over its supervised tokens. The weights are fixed
by the step's members (``ledger.py``) before it is cut into forward passes, so no cut changes them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gapft_harness.training.plan import Fitted

@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch, right-padded.

    Attributes:
        input_ids: (rows, length); what a short row is filled up with is never read.
        positions: (2, m): row and position of the token *before* each supervised one.
        targets: (m,) the supervised ids.
        weights: (m,) each supervised token's weight in the step's loss.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on another device."""
        return Batch(
            self.input_ids.to(device),
            self.positions.to(device),
            self.targets.to(device),
            self.weights.to(device),
        )


def collate(members: Sequence[Fitted], weights: Sequence[float], end_id: int | None) -> Batch:
    """Pads members on the right and marks what is supervised.

    Args:
        members: the micro-batch.
        weights: a supervised token's weight in the step's loss, one a member.
        end_id: the end-of-sequence id; needed only if a member supervises it.
    """
    rows = [_ids(member, end_id) for member in members]
    length = max(map(len, rows))
    positions: list[tuple[int, int]] = []
    targets: list[int] = []
    of_each: list[float] = []
    for row, (member, weight) in enumerate(zip(members, weights, strict=True)):
        start = len(member.prompt_ids)
        positions += [(row, place - 1) for place in range(start, len(rows[row]))]
        targets += rows[row][start:]
        of_each += [weight] * member.supervised
    return Batch(
        torch.tensor([[*row, *[row[0]] * (length - len(row))] for row in rows]),
        torch.tensor(positions).T,
        torch.tensor(targets),
        torch.tensor(of_each, dtype=torch.float32),
    )


def weighted_loss(model: Any, batch: Batch) -> torch.Tensor:
    """The micro-batch's part of the step's loss, a scalar in float32.

    The model sees no attention mask: it is causal and padding stands on the right, so that no
    position that is read ever looks at padding.
    """
    with only_at(model, batch.positions):
        logits = model(input_ids=batch.input_ids, use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(logits[0].float(), batch.targets, reduction="none")
    return (losses * batch.weights).sum()


@contextlib.contextmanager
def only_at(model: Any, positions: torch.Tensor) -> Iterator[None]:
    """Inside, the model's output layer sees the given positions alone.

    Its input is gathered before it, so that an architecture's own treatment of logits (a soft
    cap, a scale) still follows; logits are then (1, m, vocabulary), and memory for the others'
    is never asked for.

    Args:
        model: a causal language model.
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


def _ids(member: Fitted, end_id: int | None) -> list[int]:
    ids = [*member.prompt_ids, *member.target_ids]
    if member.eos:
        if end_id is None:
            raise ValueError(f"{member.slot} ends with an end-of-sequence token, but none is given")
        ids.append(end_id)
    return ids
