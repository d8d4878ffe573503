"""Divide an optimizer step into forward passes, without changing its members or its loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gapft_harness.recipe.sections import Training
from gapft_harness.training.plan import TrainingSequence

#: Default maximum of tokens in a pass without padding, by kind of device. On a CPU, larger passes
#: are not faster, and each token saves megabytes for the backward pass.
MAX_TOKENS = {"cpu": 1024, "cuda": 16384}


@dataclass(frozen=True, slots=True)
class Member:
    """A sequence of a step with the weight of each of its supervised tokens."""

    sequence: TrainingSequence
    weight: float


def cut_step(
    sequences: Sequence[TrainingSequence],
    weights: Sequence[float],
    settings: Training,
    device: str = "cpu",
) -> list[list[Member]]:
    """Divide one optimizer step into forward passes.

    Members are first sorted by length. With padding, ``micro_batch`` neighbours form a pass, which
    reduces padding. Without padding, members are divided into as few passes as ``max_tokens``
    allows, of about equal size; a longer member has a pass of its own.

    Args:
        sequences: all members of the step.
        weights: their loss weights, in the same order.
        device: kind of training device, cpu or cuda.
    """
    members = [Member(s, w) for s, w in zip(sequences, weights, strict=True)]
    members.sort(key=lambda m: (m.sequence.tokens, m.sequence.slot))
    if settings.padding_free:
        return list(_fill_passes(members, settings.max_tokens or MAX_TOKENS[device]))
    size = settings.micro_batch
    return [members[i : i + size] for i in range(0, len(members), size)]


def _fill_passes(members: Sequence[Member], ceiling: int) -> Iterator[list[Member]]:
    """Divide sorted members into passes of about equal size, as many as the token limit needs."""
    total = sum(member.sequence.tokens for member in members)
    bins: list[list[Member]] = [[] for _ in range(-(-total // ceiling))]
    while members and not _try_fill(members, bins, ceiling):
        bins = [[] for _ in range(len(bins) + 1)]
    yield from (sorted(b, key=lambda m: (m.sequence.tokens, m.sequence.slot)) for b in bins if b)


def _try_fill(members: Sequence[Member], bins: list[list[Member]], ceiling: int) -> bool:
    """Put the longest members into the emptiest bin; return False if this exceeds the limit."""
    loads = [0] * len(bins)
    for member in reversed(members):
        emptiest = loads.index(min(loads))
        loads[emptiest] += member.sequence.tokens
        bins[emptiest].append(member)
        if loads[emptiest] > ceiling and len(bins[emptiest]) > 1:
            return False
    return True
