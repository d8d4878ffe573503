"""The ledger: examples, loss weights and learning rate of each optimizer step.

This module does not import torch: the trainer follows the ledger, and ``gapft verify`` recomputes
it from the recorded selection.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.recipe.sections import Normalization, Training
from gapft_harness.training.plan import TrainingSequence

#: The optimizer, except the settings that a recipe chooses.
OPTIMIZER: dict[str, Any] = {"name": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8}


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One planned optimizer step.

    Attributes:
        number: step number from 1.
        slots: the examples, in the plan's order.
        supervised_tokens: sum over all its members.
        weights: weight of a supervised token in the step's loss, one per member.
        weight: sum of the weights over all supervised tokens; 1 for a mean.
        learning_rate: learning rate of this step.
    """

    number: int
    slots: tuple[str, ...]
    supervised_tokens: int
    weights: tuple[float, ...]
    weight: float
    learning_rate: float

    def to_log_line(self) -> dict[str, Any]:
        """Return its part of a line of ``training_log.jsonl``."""
        return {
            "step": self.number,
            "learning_rate": self.learning_rate,
            "supervised_tokens": self.supervised_tokens,
            "weight": self.weight,
            "examples": list(self.slots),
        }


def build_ledger(
    table: Sequence[Sequence[str]], sequences: Mapping[str, TrainingSequence], settings: Training
) -> list[PlannedStep]:
    """Build every step of a plan with its weights.

    Args:
        table: the plan's (step → slots) table.
        sequences: the training sequences by slot.
    """
    steps = []
    for number, slots in enumerate(table, start=1):
        members = [sequences[slot] for slot in slots]
        weights = compute_token_weights(members, settings.normalization)
        pairs = zip(weights, members, strict=True)
        steps.append(
            PlannedStep(
                number=number,
                slots=tuple(slots),
                supervised_tokens=sum(member.supervised for member in members),
                weights=tuple(weights),
                weight=math.fsum(weight * member.supervised for weight, member in pairs),
                learning_rate=compute_learning_rate(settings, number, len(table)),
            )
        )
    return steps


def compute_ledger_facts(steps: Sequence[PlannedStep]) -> dict[str, Any]:
    """Compute hashes and totals for comparing two arms, or a run and its recomputation.

    Returns:
        ``plan_sha256`` of the (step → slots) table, ``supervised_sha256`` of the steps' supervised
        tokens, ``weights_sha256`` of every member's weight, ``weight_sum`` over all steps.
    """
    return {
        "plan_sha256": _hash_json([step.slots for step in steps]),
        "supervised_sha256": _hash_json([step.supervised_tokens for step in steps]),
        "weights_sha256": _hash_json([step.weights for step in steps]),
        "weight_sum": math.fsum(step.weight for step in steps),
    }


def hash_sequences(sequences: Iterable[TrainingSequence]) -> str:
    """Hash the training data: every example's ids, and which of them are supervised.

    Args:
        sequences: the training sequences, in any order. A sequence's target ids are supervised and,
            if ``eos`` is set, the end-of-sequence id after them.
    """
    return _hash_json(sorted((s.slot, s.prompt_ids, s.target_ids, s.eos) for s in sequences))


def compute_token_weights(
    members: Sequence[TrainingSequence], normalization: Normalization
) -> list[float]:
    """Compute the weight of each supervised token of each member of one optimizer step.

    Args:
        members: all members of the step, however it is divided into micro-batches.
        normalization: ``token_mean``: 1 / (supervised tokens of the step), the same for all;
            ``sequence_mean``: 1 / (members · the member's own supervised tokens); ``token_sum``: 1,
            the sum over tokens of Equation 2.

    Returns:
        One weight per member. For a mean, the sum of weight times supervised tokens over a step is
        1.
    """
    if normalization == "token_mean":
        total = sum(member.supervised for member in members)
        return [1 / total] * len(members)
    if normalization == "token_sum":
        return [1.0] * len(members)
    return [1 / (len(members) * member.supervised) for member in members]


def compute_learning_rate(settings: Training, number: int, steps: int) -> float:
    """Compute one step's learning rate, by the formulas of transformers' schedulers of these names.

    It rises linearly from 0 over the first ``warmup_steps``; then it is constant, or falls to 0 at
    the end of training, linearly or as half a cosine wave.

    Args:
        settings: ``learning_rate``, ``schedule`` and ``warmup_steps``.
        number: step number from 1.
        steps: J, the number of steps.
    """
    finished_steps = number - 1
    warmup = settings.warmup_steps
    if finished_steps < warmup:
        return settings.learning_rate * finished_steps / warmup
    if settings.schedule == "constant":
        return settings.learning_rate
    progress = (finished_steps - warmup) / max(1, steps - warmup)
    if settings.schedule == "linear":
        return settings.learning_rate * (1 - progress)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def _hash_json(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()
