"""The optimizer loop: short, so that steps, members and loss weights can be seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator

from gapft_harness.errors import GapftError
from gapft_harness.protocols import TrainingJob
from gapft_harness.recipe import Training
from gapft_harness.training.attention import check_apart
from gapft_harness.training.ledger import Step
from gapft_harness.training.objective import collate, flatten, weighted_loss
from gapft_harness.training.passes import cut
from gapft_harness.training.plan import Fitted

#: What the optimizer is, beside the settings that a recipe chooses.
OPTIMIZER = {"name": "AdamW", "betas": [0.9, 0.999], "eps": 1e-8}


def run_steps(
    job: TrainingJob,
    settings: Training,
    model: Any,
    steps: Sequence[Step],
    fitted: Mapping[str, Fitted],
    end: int | None,
) -> list[dict[str, Any]]:
    """Runs the optimizer over all steps.

    Returns:
        The log, an entry a step.

    Raises:
        GapftError: the loss or its gradient is no finite number.
    """
    accelerator = Accelerator(cpu=_on_cpu(job))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trainable,
        lr=settings.learning_rate,
        betas=(OPTIMIZER["betas"][0], OPTIMIZER["betas"][1]),
        eps=OPTIMIZER["eps"],
        weight_decay=settings.weight_decay,
        fused=True,
    )
    model, optimizer = accelerator.prepare(model, optimizer)
    model.train()
    if settings.padding_free:
        check_apart(model, accelerator.device)
    lay_out = flatten if settings.padding_free else collate
    log = []
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = step.learning_rate
        parts = []
        for members in cut([fitted[slot] for slot in step.slots], step.weights, settings):
            batch = lay_out(members, end).to(accelerator.device)
            part = weighted_loss(model, batch)
            accelerator.backward(part)
            parts.append(part.detach())
        # read here, not after each forward pass: reading waits for the device
        loss = float(torch.stack(parts).sum())
        norm = float(accelerator.clip_grad_norm_(trainable, settings.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise GapftError(
                f"{job.arm.name}: step {step.number} of {len(steps)} has loss {loss} and gradient "
                f"norm {norm}; examples: {', '.join(step.slots)}. Nothing was written"
            )
        optimizer.step()
        optimizer.zero_grad()
        log.append({"loss": loss, "grad_norm": norm, **step.line()})
        job.progress(step.number, len(steps))
    return log


def _on_cpu(job: TrainingJob) -> bool:
    return job.model_args.get("device") == "cpu" or not torch.cuda.is_available()
