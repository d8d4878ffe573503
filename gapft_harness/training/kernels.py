"""Which kernels a training runs with: PyTorch's, or fused ones where the recipe asks for them."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import torch

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Training

_PLAIN = "or set training.kernels: plain"
#: Liger's kernels that the objective's own code stands in for.
_NOT_LIGERS = {"cross_entropy": False, "fused_linear_cross_entropy": False}


def check_kernels(
    settings: Training, model_type: str | None, device: torch.device, sharded: bool
) -> None:
    """Checks that what ``training.kernels: fused`` asks for can be had.

    Args:
        model_type: of the base's config; None: not known yet.
        device: that trains.
        sharded: whether the base's weights are split among processes (FSDP).

    Raises:
        UserError: it cannot.
    """
    if settings.kernels == "plain":
        return
    key = "training.kernels: fused"
    if device.type != "cuda":
        raise UserError(f"{key} needs a CUDA device, and this training is on {device}; {_PLAIN}")
    if sharded:
        raise UserError(f"{key} cannot be had with executor.fsdp; leave that out, {_PLAIN}")
    if importlib.util.find_spec("liger_kernel") is None:
        raise UserError(
            f"{key} needs Liger's kernels, which are not installed; pip install "
            f"'gapft-harness[fused]', {_PLAIN}"
        )
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    if model_type is not None and model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise UserError(f"{key}: Liger has no kernels for models of type {model_type}; {_PLAIN}")


@contextlib.contextmanager
def kernels(settings: Training, base: Any) -> Iterator[None]:
    """Inside, the base computes with the kernels of the recipe; afterwards nothing is changed.

    On a GPU cuDNN's attention is off: it makes a plan for every new length, which takes longer
    than the step, and lengths are new at every step.

    Args:
        base: the model, which has no adapter yet.
    """
    cudnn = bool(torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with _ligers(base) if settings.kernels == "fused" else contextlib.nullcontext():
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)


@contextlib.contextmanager
def _ligers(base: Any) -> Iterator[None]:
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    # names of the model's module are replaced too, which models made later would take
    names = vars(sys.modules[type(base).__module__])
    before = dict(names)
    try:
        _apply_liger_kernel_to_instance(model=base, **_NOT_LIGERS)
        yield
    finally:
        names.update(before)
