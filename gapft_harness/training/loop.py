"""The optimizer loop: steps, members and loss weights, and checkpoints of interrupted trainings."""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import replace_file
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from gapft_harness.training.attention import check_separation
from gapft_harness.training.ledger import OPTIMIZER, PlannedStep
from gapft_harness.training.objective import collate, compute_loss, flatten
from gapft_harness.training.passes import cut_step
from gapft_harness.training.plan import TrainingSequence


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file beside an adapter's folder, complete or absent, and removed once the adapter is saved.

    Attributes:
        path: the file.
        key: hash of all inputs of the training, including the kind of device; a file with a
            different key is ignored.
        every: steps between two saved states; None: save only the last state before a failure.
    """

    path: Path
    key: str
    every: int | None

    @classmethod
    def for_output(
        cls, output: Path, inputs: Mapping[str, Any], device: torch.device, every: int | None
    ) -> Checkpoint:
        """Build the checkpoint of the adapter that will be saved at ``output``."""
        # A GPU has its own random states and rounds differently from a CPU: neither can resume from
        # a state of the other.
        text = json.dumps({**inputs, "device": device.type}, sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        return cls(output.with_name(f".{output.name}.checkpoint"), key, every)

    def save(
        self,
        model: Any,
        optimizer: Any,
        log: list[dict[str, Any]],
        random: Mapping[str, torch.Tensor],
    ) -> None:
        """Save adapter, optimizer, log and random states.

        Args:
            model: base and adapter.
            optimizer: the adapter's.
            log: entries of the finished steps.
            random: ``read_random_state``, taken before the next step.
        """
        state = {
            "key": self.key,
            "log": json.dumps(log),
            "adapter": {n: p.detach().cpu() for n, p in _select_trainable(model)},
            "optimizer": optimizer.state_dict(),
            "random": dict(random),
        }
        content = io.BytesIO()  # torch does not say that a disk is full
        torch.save(state, content)
        replace_file(self.path, lambda temporary: temporary.write_bytes(content.getbuffer()))

    def load(self, device: torch.device, model: Any, optimizer: Any) -> list[dict[str, Any]]:
        """Load the saved state.

        Returns:
            The log of the finished steps; empty if there is no state, or it belongs to a different
            training (changed library, kind of device or base).
        """
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            return []
        except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
            return []  # not our file: ours is renamed only when complete
        if not isinstance(state, dict) or state.get("key") != self.key:
            return []
        with torch.no_grad():
            for name, parameter in _select_trainable(model):
                parameter.copy_(state["adapter"][name])
        optimizer.load_state_dict(state["optimizer"])
        _restore_random_state(state["random"], device)
        log: list[dict[str, Any]] = json.loads(state["log"])
        return log

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self.path.unlink(missing_ok=True)
        self.path.with_name(f".{self.path.name}.partial").unlink(missing_ok=True)


def _select_trainable(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def read_random_state(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the random states from which dropout masks are drawn."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def _restore_random_state(state: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def run_steps(
    job: TrainingJob,
    settings: Training,
    model: Any,
    steps: Sequence[PlannedStep],
    sequences: Mapping[str, TrainingSequence],
    end: int | None,
    device: torch.device,
    checkpoint: Checkpoint,
    log_step: Callable[[dict[str, Any], int], None] = lambda values, step: None,
    is_head_last: bool = False,
) -> list[dict[str, Any]]:
    """Run the optimizer over all steps, or the steps left by an interrupted training.

    Args:
        job: the arm, for messages and progress.
        model: base and adapter, on the device.
        steps: all steps of the arm.
        sequences: its training sequences by slot.
        end: the end-of-sequence id; None if no member supervises it.
        device: the device of the inputs.
        checkpoint: stores states between steps.
        log_step: called with loss, gradient norm and learning rate, and the step's number.
        is_head_last: see ``compute_loss``.

    Returns:
        The log, one entry per step.

    Raises:
        GapftError: the loss or its gradient is not finite; the state before that step, if it is not
            the first, is saved in the checkpoint.
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
        check_separation(model, device)
    lay_out = flatten if settings.padding_free else collate
    log = checkpoint.load(device, model, optimizer)
    model.train()
    for step in steps[len(log) :]:
        random_before = read_random_state(device)  # a step that fails has already drawn its masks
        for group in optimizer.param_groups:
            group["lr"] = step.learning_rate
        members = [sequences[slot] for slot in step.slots]
        parts = [torch.zeros((), device=device)]
        for pass_members in cut_step(members, step.weights, settings, device.type):
            batch = lay_out(pass_members, end).to(device)
            part = compute_loss(model, batch, is_head_last)
            part.backward()  # type: ignore[no-untyped-call, unused-ignore]
            parts.append(part.detach().to(device))
        # read once, not after each forward pass: reading waits for the device
        loss = float(torch.stack(parts).sum())
        norm = float(torch.nn.utils.clip_grad_norm_(trainable, settings.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            state_text = "Nothing was written"
            if log:
                checkpoint.save(model, optimizer, log, random_before)
                state_text = f"The state before it is saved in {checkpoint.path}"
            raise GapftError(
                f"{job.arm.name}: step {step.number} of {len(steps)} has loss {loss} and "
                f"gradient norm {norm}; examples: {', '.join(step.slots)}. {state_text}"
            )
        optimizer.step()
        optimizer.zero_grad()
        figures = {"loss": loss, "grad_norm": norm}
        log.append({**figures, **step.to_log_line()})
        log_step({**figures, "learning_rate": step.learning_rate}, step.number)
        every = checkpoint.every
        if every is not None and step.number % every == 0 and step.number < len(steps):
            checkpoint.save(model, optimizer, log, read_random_state(device))
        job.progress(step.number, len(steps))
    return log
