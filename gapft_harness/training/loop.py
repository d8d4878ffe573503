"""The optimizer loop: short, so that steps, members and loss weights can be seen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gapft_harness.core.errors import GapftError
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from gapft_harness.training.base.attention import check_apart
from gapft_harness.training.checkpoint import Checkpoint, random_state
from gapft_harness.training.ledger import OPTIMIZER, Step
from gapft_harness.training.machine.devices import Devices
from gapft_harness.training.machine.speed import Tell, untold
from gapft_harness.training.objective import collate, flatten, weighted_loss
from gapft_harness.training.passes import cut, cut_alike
from gapft_harness.training.plan import Fitted


def run_steps(
    job: TrainingJob,
    settings: Training,
    model: Any,
    steps: Sequence[Step],
    fitted: Mapping[str, Fitted],
    end: int | None,
    devices: Devices,
    checkpoint: Checkpoint,
    follow: Callable[[int], Tell] = lambda first_step: untold,
    head_is_last: bool = False,
) -> list[dict[str, Any]]:
    """Runs the optimizer over all steps, or over those that a killed training left.

    Args:
        job: the arm, for messages and progress.
        settings: the recipe's training section.
        model: base and adapter, on the device.
        steps: all of the arm's.
        fitted: its sequences by slot.
        end: the end-of-sequence id; None if no member supervises it.
        devices: the processes that share every step.
        checkpoint: where states between steps are kept.
        follow: given the number of the step that comes first, what is to be told of every step.
        head_is_last: see ``weighted_loss``.

    Returns:
        The log, an entry a step.

    Raises:
        GapftError: the loss or its gradient is no finite number; the state before that step, if
            it is not the first, is kept in the checkpoint.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trainable,
        lr=settings.learning_rate,
        betas=tuple(OPTIMIZER["betas"]),
        eps=OPTIMIZER["eps"],
        weight_decay=settings.weight_decay,
        fused=True,
    )
    if settings.padding_free:
        check_apart(model, devices.device)
    divide = cut_alike if devices.sharded else cut
    lay_out = flatten if settings.padding_free else collate
    log = checkpoint.load(devices, model, optimizer)
    model.train()
    tell = follow(len(log) + 1)
    for step in steps[len(log) :]:
        begun = time.perf_counter()
        before = random_state(devices.device)  # a step that fails has drawn its masks by then
        for group in optimizer.param_groups:
            group["lr"] = step.learning_rate
        members = [fitted[slot] for slot in step.slots]
        parts = [torch.zeros((), device=devices.device)]
        for one_pass in divide(members, step.weights, settings, devices.share, devices.shares):
            batch = lay_out(one_pass, end).to(devices.device)
            part = weighted_loss(model, batch, head_is_last)
            part.backward()  # type: ignore[no-untyped-call, unused-ignore]
            parts.append(part.detach())
        # read here, not after each forward pass: reading waits for the device
        loss = float(devices.total(torch.stack(parts).sum(), trainable))
        norm = float(torch.nn.utils.clip_grad_norm_(trainable, settings.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            kept = "Nothing was written"
            if log:
                checkpoint.save(devices, model, optimizer, log, before)
                kept = f"The state before it is kept in {checkpoint.path}"
            raise GapftError(
                f"{job.arm.name}: step {step.number} of {len(steps)} has loss {loss} and "
                f"gradient norm {norm}; examples: {', '.join(step.slots)}. {kept}"
            )
        optimizer.step()
        optimizer.zero_grad()
        log.append({"loss": loss, "grad_norm": norm, **step.line()})
        tell(log[-1], sum(m.tokens for m in members), time.perf_counter() - begun)
        if checkpoint.due(step.number, len(steps)):
            checkpoint.save(devices, model, optimizer, log, random_state(devices.device))
        job.progress(step.number, len(steps))
    return log
