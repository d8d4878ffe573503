"""The processes that share one training: their devices, and the sum of their gradients."""

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
    """This process and the others of one training; usually it is the only one.

    Attributes:
        accelerator: source of the process group and the device, for any launcher.
        device: device of this process.
        rank: number of this process, from 0.
        process_count: number of processes.
        is_sharded: whether they shard the base's weights (FSDP).
    """

    accelerator: Any
    device: torch.device
    rank: int
    process_count: int
    is_sharded: bool = False

    @classmethod
    def of(cls, job: TrainingJob) -> Devices:
        """Build the processes from a launcher's environment, or this process alone.

        Raises:
            UserError: the ``device`` in the model's arguments is unknown or missing on this
                machine, there are more processes than GPUs, or FSDP is set with one process.
        """
        device_choice = resolve_device(job.model_args.get("device"))
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        is_on_cpu = device_choice.type == "cpu" or not torch.cuda.is_available()
        if not (is_on_cpu or parse_flag_from_env("ACCELERATE_USE_CPU")):
            _check_gpus(device_choice, processes)
        accelerator = _create_accelerator(is_on_cpu, processes)
        process_count = accelerator.num_processes
        if job.fsdp and process_count == 1:
            raise UserError(
                "executor.fsdp: needs several processes to shard the base's weights, found one; "
                "set executor.processes to 2 or more, or executor.fsdp: false"
            )
        device = accelerator.device
        if device.type == "cuda" and device_choice.index is not None:
            torch.cuda.set_device(device_choice)  # for code that uses the default device
            device = device_choice
        return cls(accelerator, device, accelerator.process_index, process_count, job.fsdp)

    def check(self, settings: Training) -> None:
        """Check that the device and the processes support the recipe's settings.

        Raises:
            UserError: a setting is not supported.
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

    def place_model(self, model: Any) -> Any:
        """Place the frozen base on this process's device: complete, or this process's shard.

        With FSDP, a layer's weights are gathered only while it computes; adapters are added later
        and are complete on every process, so that gradients, clipping, optimizer, checkpoints and
        saving work as without FSDP.

        Raises:
            UserError: transformers does not declare which modules of the model are its layers.
        """
        if getattr(model, "is_quantized", False):  # already on its device
            return model
        if not self.is_sharded:
            return model.to(self.device)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        names = set(getattr(model, "_no_split_modules", None) or ())
        layers = [module for module in model.modules() if type(module).__name__ in names]
        if not layers:
            raise UserError(
                f"executor.fsdp: {type(model).__name__} does not name its layers "
                "(_no_split_modules), so its weights cannot be sharded; set executor.fsdp: false"
            )
        model.requires_grad_(False)
        mesh = init_device_mesh(self.device.type, (self.process_count,))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def sum_gradients(
        self, loss: torch.Tensor, trainable: Sequence[torch.nn.Parameter]
    ) -> torch.Tensor:
        """Sum loss and gradients over all processes; every process then has the sums.

        A step's loss weights are fixed before it is divided, so a plain sum is the step's loss.
        """
        if self.process_count == 1:
            return loss
        for parameter in trainable:
            if parameter.grad is None:  # this process has no member of the step
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
        """Return every process's value, in the order of their ranks."""
        from accelerate.utils import gather_object

        return list(gather_object([value])) if self.process_count > 1 else [value]

    @property
    def memory_sharers(self) -> int:
        """Number of processes that share the memory of this process's device."""
        return self.local_processes if self.device.type == "cpu" else 1

    @property
    def local_processes(self) -> int:
        """Number of processes on this machine."""
        return (
            int(os.environ.get("LOCAL_WORLD_SIZE", self.process_count))
            if self.process_count > 1
            else 1
        )

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have reached this point."""
        if self.process_count > 1:
            self.accelerator.wait_for_everyone()


def resolve_device(name: object) -> torch.device:
    """Return the training device: the one in the model's arguments, or a GPU if any.

    Training runs on CUDA or CPUs; for any other kind of device, on the CPU.

    Raises:
        UserError: torch does not know the name, or the GPU is missing on this machine.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(str(name))
    except RuntimeError as error:
        raise UserError(
            f"model.args.device: unknown device {name!r}; expected cpu, cuda, or cuda:1 for the "
            "second GPU"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"model.args.device: found {name}, but torch finds no GPU on this machine; set it to "
            "cpu, or remove it"
        )
    return device if device.type == "cuda" else torch.device("cpu")


def _create_accelerator(cpu: bool, processes: int) -> Accelerator:
    """Create the job's Accelerator; reset Accelerate if it keeps another kind of device.

    Accelerate keeps the first Accelerator's device for as long as a process lives.
    """
    existing = PartialState._shared_state.get("device")
    if processes == 1 and existing is not None and (existing.type == "cpu") != cpu:
        AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=cpu)


def _check_gpus(device: torch.device, processes: int) -> None:
    """Check that every process has its own GPU; accelerate would let two share one."""
    gpu_count = torch.cuda.device_count()
    if device.index is not None and processes > 1:
        raise UserError(
            f"model.args.device: {device} names one GPU, but {processes} processes need one each; "
            "write cuda, and choose GPUs with the environment variable CUDA_VISIBLE_DEVICES"
        )
    if device.index is not None and device.index >= gpu_count:
        raise UserError(
            f"model.args.device: no GPU {device}; this process sees {gpu_count} GPUs, from cuda:0"
        )
    if processes > gpu_count:
        raise UserError(
            f"executor.processes: {processes} processes of one training need a GPU each, but this "
            f"job sees {gpu_count}; lower it, or with executor.name: ray raise executor.gpus"
        )
