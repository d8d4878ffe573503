"""The processes that share one training: who does what, and the sum of their gradients."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import parse_flag_from_env

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training


@dataclass(frozen=True, slots=True)
class Devices:
    """This process among those of one training; one for most.

    Attributes:
        accelerator: where the process group and the device come from, whoever launched.
        device: what this process computes on.
        share: this process's number, from 0.
        shares: how many there are.
        sharded: whether they share the base's weights out among them (FSDP).
    """

    accelerator: Any
    device: torch.device
    share: int
    shares: int
    sharded: bool = False

    @classmethod
    def of(cls, job: TrainingJob) -> Devices:
        """Those that a launcher's environment names, or this process alone.

        Raises:
            UserError: a ``device`` of the model's arguments that is none or is not here, more
                processes than GPUs, or one process that is to share the base's weights out.
        """
        asked = asked_device(job.model_args.get("device"))
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        on_cpu = asked.type == "cpu" or not torch.cuda.is_available()
        if not (on_cpu or parse_flag_from_env("ACCELERATE_USE_CPU")):
            _check_gpus(asked, processes)
        accelerator = _accelerator(on_cpu, processes)
        shares = accelerator.num_processes
        if job.fsdp and shares == 1:
            raise UserError(
                "executor.fsdp: there is one process, so no other to share the base's weights "
                "with; set executor.processes to 2 or more, or executor.fsdp: false"
            )
        device = accelerator.device
        if device.type == "cuda" and asked.index is not None:
            torch.cuda.set_device(asked)  # for what asks for no device of its own
            device = asked
        return cls(accelerator, device, accelerator.process_index, shares, job.fsdp)

    def check(self, settings: Training) -> None:
        """Checks that the device and the sharing are able to do what the recipe asks.

        Raises:
            UserError: they are not.
        """
        if (
            settings.dtype == "bfloat16"
            and self.device.type == "cuda"
            and not torch.cuda.is_bf16_supported(including_emulation=False)
        ):
            raise UserError(
                f"training.dtype: {torch.cuda.get_device_name(self.device)} does not compute in "
                "bfloat16; set training.dtype: float32, or use a GPU of the Ampere generation or "
                "later"
            )
        if self.sharded and settings.quantize is not None:
            raise UserError(
                f"executor.fsdp: a base in {settings.quantize} (training.quantize) cannot be "
                "shared out; leave one of the two out"
            )

    def place(self, model: Any) -> Any:
        """The frozen base on this process's device: whole, or this process's part of it.

        With FSDP a layer's weights are together only while it computes; adapters are added later
        and stay whole on every process, so that gradients, clipping, optimizer, kept states and
        saving are those of unshared weights.

        Raises:
            UserError: transformers does not say which modules of the model are its layers.
        """
        if getattr(model, "is_quantized", False):  # loaded to where it belongs
            return model
        if not self.sharded:
            return model.to(self.device)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        names = set(getattr(model, "_no_split_modules", None) or ())
        layers = [module for module in model.modules() if type(module).__name__ in names]
        if not layers:
            raise UserError(
                f"executor.fsdp: {type(model).__name__} does not name its layers "
                "(_no_split_modules), so its weights cannot be shared out; set it to false"
            )
        model.requires_grad_(False)
        mesh = init_device_mesh(self.device.type, (self.shares,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

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
    def on_this_memory(self) -> int:
        """How many of the processes use the memory that this one does."""
        return self.on_this_machine if self.device.type == "cpu" else 1

    @property
    def on_this_machine(self) -> int:
        """How many of the processes run on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.shares)) if self.shares > 1 else 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.share == 0

    def wait(self) -> None:
        """Until all processes have come this far."""
        if self.shares > 1:
            self.accelerator.wait_for_everyone()


def asked_device(name: object) -> torch.device:
    """Return the device that trains: the one that the model's arguments name, or a GPU if any.

    Training runs on CUDA and on CPUs; where the arguments name another kind, on the CPU.

    Raises:
        UserError: the name is none of torch's, or a GPU that is not here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(str(name))
    except RuntimeError as error:
        raise UserError(
            f"model.args.device: {name!r} is no device; write cpu, cuda, or cuda:1 for the second "
            "GPU"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"model.args.device: {name}, but torch finds no GPU here; set it to cpu, or leave it "
            "out"
        )
    return device if device.type == "cuda" else torch.device("cpu")


def _accelerator(cpu: bool, processes: int) -> Accelerator:
    """One for this job: Accelerate keeps the first one's device for as long as a process lives."""
    known = PartialState._shared_state.get("device")
    if processes == 1 and known is not None and (known.type == "cpu") != cpu:
        AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=cpu)


def _check_gpus(asked: torch.device, processes: int) -> None:
    """Every process needs a GPU of its own; accelerate would let two meet on one."""
    found = torch.cuda.device_count()
    if asked.index is not None and processes > 1:
        raise UserError(
            f"model.args.device: {asked} names one GPU, and {processes} processes need one each; "
            "write cuda, and choose GPUs by the environment variable CUDA_VISIBLE_DEVICES"
        )
    if asked.index is not None and asked.index >= found:
        raise UserError(
            f"model.args.device: there is no {asked}; this process sees {found} GPUs, from cuda:0"
        )
    if processes > found:
        raise UserError(
            f"executor.processes: {processes} processes of one training need a GPU each, and this "
            f"job sees {found}; lower it, or with executor.name: ray raise executor.gpus"
        )
