"""Training as a minimal loop: padding, masks, logits at every position, torch's loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gapft_harness.core.streams import derive_key
from gapft_harness.recipe.sections import Training
from gapft_harness.training.model import add_lora
from gapft_harness.training.plan import TrainingSequence


def run_literal_training(
    base: Any,
    steps: Sequence[Sequence[TrainingSequence]],
    settings: Training,
    end: int | None,
    seed: int = 13,
) -> Iterator[tuple[float, float, Any]]:
    """Train a PEFT adapter initialised as by the harness; yield after each step.

    Args:
        base: the model in the settings' dtype.
        steps: the members of each optimizer step, in the order of their forward passes.

    Yields:
        Loss, gradient norm and the model.
    """
    model = add_lora(base, settings, derive_key(seed, "train/init") >> 33).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    for members in steps:
        supervised = sum(member.supervised for member in members)
        total, size = 0.0, settings.micro_batch
        for start in range(0, len(members), size):
            batch = members[start : start + size]
            rows = [
                [*m.prompt_ids, *m.target_ids, *([end] if m.eos and end is not None else [])]
                for m in batch
            ]
            length = max(map(len, rows))
            ids, mask = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(2))
            labels = torch.full((len(rows), length), -100)
            for row, (member, content) in enumerate(zip(batch, rows, strict=True)):
                ids[row, : len(content)] = torch.tensor(content)
                mask[row, : len(content)] = 1
                labels[row, len(member.prompt_ids) : len(content)] = torch.tensor(
                    content[len(member.prompt_ids) :]
                )
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.float()
            losses = torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="none"
            ).view(len(rows), -1)
            if settings.normalization == "token_mean":
                loss = losses.sum() / supervised
            elif settings.normalization == "token_sum":
                loss = losses.sum()
            else:
                supervised_counts = torch.tensor([float(member.supervised) for member in batch])
                loss = (losses.sum(dim=1) / supervised_counts).sum() / len(members)
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            total += loss.item()
        norm = float(torch.nn.utils.clip_grad_norm_(trained, settings.clip_norm))
        optimizer.step()
        optimizer.zero_grad()
        yield total, norm, model
