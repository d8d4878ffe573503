"""How fast a training runs, for its trackers: tokens a second, and the share of the device's peak.

None of this reaches the adapter's folder, whose bytes repeat.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import torch

from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.training.devices import Devices

#: Model FLOPs by convention, a parameter of the base and token: 2 forward and 2 backward through
#: the activations. LoRA needs no gradient of the base's weights, recomputation is not counted.
FLOPS = 4

#: A matrix product is large enough for the peak if it takes this long; no larger one is tried.
_SECONDS = 0.02
_LARGEST = 8192

Tell = Callable[[Mapping[str, Any], int, float], None]


def untold(line: Mapping[str, Any], tokens: int, seconds: float) -> None:
    """Of a training without trackers nobody is told."""


@contextlib.contextmanager
def followed(job: TrainingJob, model: Any, devices: Devices, first_step: int) -> Iterator[Tell]:
    """Opens the job's trackers in the first process, and gives what tells them of a step.

    It is called with the step's line of the log, its tokens and its seconds. Without trackers
    nothing is measured.

    Args:
        model: base and adapter, on the device.
        devices: the processes that share every step.
        first_step: the number of the step that comes first.
    """
    if not (job.tracking and devices.first):
        yield untold
        return
    parameters = base_parameters(model)
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    peak = devices.shares * matrix_peak(devices.device, dtype)

    def tell(line: Mapping[str, Any], tokens: int, seconds: float) -> None:
        values = {
            "loss": line["loss"],
            "grad_norm": line["grad_norm"],
            "learning_rate": line["learning_rate"],
            "supervised_tokens_per_second": line["supervised_tokens"] / seconds,
            "tokens_per_second": tokens / seconds,
            "share_of_peak": FLOPS * parameters * tokens / seconds / peak,
        }
        job.tracking.log(line["step"], values)

    with job.tracking.opened(first_step):
        yield tell


def base_parameters(model: Any) -> int:
    """Parameters of the frozen base: all but the adapter's, input embedding and head included."""
    trainable, total = model.get_nb_trainable_parameters()
    return int(total - trainable)


@lru_cache(maxsize=8)
def matrix_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest square matrix product measured here, once a process.

    Sizes double until a product takes 20 ms or has 8,192 rows; each is timed five times. The
    entries are random, since a GPU's clock depends on them, and come from a stream of their own.
    """
    generator = torch.Generator(device).manual_seed(0)
    best, size = 0.0, 256
    while True:
        a, b = (
            torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2)
        )
        seconds = min(_product_seconds(a, b) for _ in range(5))
        best = max(best, 2 * size**3 / seconds)
        if seconds > _SECONDS or size >= _LARGEST:
            return best
        size *= 2


def _product_seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    synchronize(a.device)
    start = time.perf_counter()
    torch.matmul(a, b)
    synchronize(a.device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Waits until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
