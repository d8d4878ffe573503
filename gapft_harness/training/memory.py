"""The memory of a training: weights, adapter and optimizer, from the shapes in the base's config.

What a forward pass saves for its backward pass is not estimated: it depends on
``training.micro_batch``, which the error names if memory runs out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gapft_harness.core.cgroups import read_usable_memory
from gapft_harness.core.errors import GapftError, is_out_of_memory
from gapft_harness.recipe.sections import Training

_GB = 1e9
#: Bytes of a trained weight: float32, its gradient, and AdamW's two states.
_TRAINED_BYTES = 4 * 4
#: Least bytes of a weight in quantized files.
_QUANTIZED_BYTES = 0.5


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes that a training holds all the time.

    Attributes:
        weights: the frozen base.
        adapter: the adapter with its gradients and the states of its optimizer.
    """

    weights: int
    adapter: int

    @property
    def total(self) -> int:
        """Sum of both parts."""
        return self.weights + self.adapter

    def __str__(self) -> str:
        """Format in gigabytes (10⁹ bytes)."""
        return (
            f"{self.total / _GB:.3g} GB (weights {self.weights / _GB:.3g}, adapter and optimizer "
            f"{self.adapter / _GB:.3g}) and what a pass saves"
        )


def estimate_memory(model: Any, settings: Training) -> MemoryEstimate:
    """Estimate the memory of a training from a base on the meta device (``build_meta_model``)."""
    rows_and_columns = sum(
        linear.in_features + linear.out_features
        for path, linear in model.named_modules()
        if isinstance(linear, torch.nn.Linear)
        and path.rpartition(".")[2] in settings.target_modules
    )
    adapter = settings.rank * rows_and_columns * _TRAINED_BYTES
    return MemoryEstimate(_count_weight_bytes(model, settings), adapter)


def _count_weight_bytes(model: Any, settings: Training) -> int:
    """Count the bytes of a base's weights; of quantized files at least so many."""
    is_quantized = getattr(model.config, "quantization_config", None) is not None
    width = _QUANTIZED_BYTES if is_quantized else getattr(torch, settings.dtype).itemsize
    return int(width * sum(parameter.numel() for parameter in model.parameters()))


def is_larger_than_gpu(model: Any, settings: Training, device: torch.device) -> bool:
    """Return whether a base exceeds its GPU, and this process sees further ones.

    Args:
        model: the base on the meta device.
        settings: the training settings.
        device: the training device; one with a number is the only one that is used.
    """
    if str(device) != "cuda" or torch.cuda.device_count() == 1:
        return False
    return _count_weight_bytes(model, settings) > measure_usable_memory(device)


def measure_usable_memory(device: torch.device) -> int:
    """Measure the bytes that this process may use: those free on a GPU, or all of the machine's."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return read_usable_memory()


@contextlib.contextmanager
def explain_out_of_memory(
    estimate: MemoryEstimate, arm: str, device: torch.device
) -> Iterator[None]:
    """Within the context, convert a device's out-of-memory error to one with the remedy.

    Raises:
        GapftError: the device ran out of memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise GapftError(
            f"{arm}: {device} ran out of memory, of which training holds {estimate}; lower "
            "training.micro_batch (with padding_free: training.max_tokens) or executor.workers, or "
            "set training.gradient_checkpointing: true"
        ) from error
