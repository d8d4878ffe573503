"""Kernels of a training: PyTorch's, or fused ones if the recipe asks for them."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

import torch

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Training

_PLAIN_REMEDY = "or set training.kernels: plain"
#: Liger's kernels that the objective's own code replaces.
_DISABLED_LIGER_KERNELS = {"cross_entropy": False, "fused_linear_cross_entropy": False}


def check_kernels(settings: Training, model_type: str | None, device: torch.device) -> None:
    """Check that ``training.kernels: fused`` is possible.

    Args:
        model_type: model type in the base's config; None if not known yet.
        device: the training device.

    Raises:
        UserError: it is not; the message names the reason.
    """
    if settings.kernels == "plain":
        return
    key = "training.kernels: fused"
    if device.type != "cuda":
        raise UserError(
            f"{key} needs a CUDA device, but this training runs on {device}; {_PLAIN_REMEDY}"
        )
    if importlib.util.find_spec("liger_kernel") is None:
        raise UserError(
            f"{key} needs Liger's kernels, which are not installed; pip install "
            f"'gapft-harness[fused]', {_PLAIN_REMEDY}"
        )
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    if model_type is not None and model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise UserError(
            f"{key}: Liger has no kernels for models of type {model_type}; {_PLAIN_REMEDY}"
        )


@contextlib.contextmanager
def use_kernels(settings: Training, base: Any) -> Iterator[None]:
    """Within the context, run the base with the recipe's kernels; undo all changes afterwards.

    cuDNN's attention is turned off on GPUs: it builds a plan for every new length, which takes
    longer than the step, and lengths change at every step.

    Args:
        base: the model without an adapter.
    """
    was_cudnn_enabled = bool(torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with _use_liger_kernels(base) if settings.kernels == "fused" else contextlib.nullcontext():
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_cudnn_enabled)


@contextlib.contextmanager
def _use_liger_kernels(base: Any) -> Iterator[None]:
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    # Liger also replaces names in the model's module, which would affect models created later
    names = vars(sys.modules[type(base).__module__])
    saved_names = dict(names)
    try:
        _apply_liger_kernel_to_instance(model=base, **_DISABLED_LIGER_KERNELS)
        yield
    finally:
        names.update(saved_names)
