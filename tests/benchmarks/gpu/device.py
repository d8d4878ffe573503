"""Measure a device, and count what a model computes on it."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import torch

#: Model FLOPs per base parameter and token, by convention: 2 forward and 2 backward through the
#: activations. LoRA needs no gradient of the base's weights; recomputation is not counted.
FLOPS_PER_PARAMETER = 4

#: Seconds of a matrix product that is large enough to measure the peak; no larger one is tried.
_MIN_PRODUCT_SECONDS = 0.02
_MAX_SIZE = 8192


def count_base_parameters(model: Any) -> int:
    """Count the frozen base's parameters, with input embedding and head, without the adapter."""
    trainable, total = model.get_nb_trainable_parameters()
    return int(total - trainable)


@lru_cache(maxsize=8)
def measure_matrix_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the FLOP/s of the fastest square matrix product, once per process.

    Sizes double until a product takes 20 ms or has 8,192 rows; each is timed five times. The
    entries are random, because a GPU's clock depends on them, and come from a separate stream.
    """
    generator = torch.Generator(device).manual_seed(0)
    best, size = 0.0, 256
    while True:
        a, b = (
            torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2)
        )
        seconds = min(_time_product(a, b) for _ in range(5))
        best = max(best, 2 * size**3 / seconds)
        if seconds > _MIN_PRODUCT_SECONDS or size >= _MAX_SIZE:
            return best
        size *= 2


def _time_product(a: torch.Tensor, b: torch.Tensor) -> float:
    synchronize(a.device)
    start = time.perf_counter()
    torch.matmul(a, b)
    synchronize(a.device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
