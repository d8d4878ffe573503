"""The device of a training."""

from __future__ import annotations

import torch

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Training


def choose_device(name: object) -> torch.device:
    """Return the training device, and make it torch's current one.

    Raises:
        UserError: see ``resolve_device``.
    """
    device = resolve_device(name)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # for code that uses the default device
    return device


def resolve_device(name: object) -> torch.device:
    """Return the training device: the one in the model's arguments, or a GPU if any.

    Training runs on CUDA or CPUs; for any other kind of device, on the CPU.

    Raises:
        UserError: torch does not know the name, or this process does not see the GPU.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(str(name))
    except RuntimeError as error:
        raise UserError(f"model.args.device: unknown device {name!r}: {error}") from error
    if device.type != "cuda":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        raise UserError(
            f"model.args.device: found {name}, but this process sees {count} GPUs; expected cpu, "
            "cuda, or cuda:1 for the second GPU"
        )
    return device


def check_dtype(settings: Training, device: torch.device) -> None:
    """Check that the device computes in the recipe's dtype.

    Raises:
        UserError: it does not.
    """
    if (
        settings.dtype == "bfloat16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise UserError(
            f"training.dtype: {torch.cuda.get_device_name(device)} does not compute in bfloat16; "
            "set training.dtype: float32, or use a GPU of the Ampere generation or later"
        )
