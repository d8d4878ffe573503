"""The processes that share one training: who does what, and the sum of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator

from gapft_harness.protocols import TrainingJob


@dataclass(frozen=True, slots=True)
class Devices:
    """This process among those of one training; one for most.

    Attributes:
        accelerator: where the process group and the device come from, whoever launched.
        device: what this process computes on.
        share: this process's number, from 0.
        shares: how many there are.
    """

    accelerator: Any
    device: torch.device
    share: int
    shares: int

    @classmethod
    def of(cls, job: TrainingJob) -> Devices:
        """Those that a launcher's environment names, or this process alone."""
        on_cpu = job.model_args.get("device") == "cpu" or not torch.cuda.is_available()
        accelerator = Accelerator(cpu=on_cpu)
        return cls(
            accelerator, accelerator.device, accelerator.process_index, accelerator.num_processes
        )

    def total(self, loss: torch.Tensor, trainable: Sequence[torch.nn.Parameter]) -> torch.Tensor:
        """Sums loss and gradients over all processes; every process then has the sums.

        The weights of a step are fixed before it is dealt out, so a plain sum is the step's loss.
        """
        if self.shares == 1:
            return loss
        for parameter in trainable:
            if parameter.grad is None:  # this process got nothing of the step
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in trainable]
        flat = torch.cat(
            [loss.reshape(1), *(g.reshape(-1).float() for g in gradients if g is not None)]
        )
        flat = self.accelerator.reduce(flat, "sum")
        start = 1
        for gradient in gradients:
            assert gradient is not None
            end = start + gradient.numel()
            gradient.copy_(flat[start:end].view_as(gradient))
            start = end
        total: torch.Tensor = flat[0]
        return total

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, in the order of their shares."""
        from accelerate.utils import gather_object

        return list(gather_object([value])) if self.shares > 1 else [value]

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.share == 0

    def wait(self) -> None:
        """Until all processes have come this far."""
        if self.shares > 1:
            self.accelerator.wait_for_everyone()
