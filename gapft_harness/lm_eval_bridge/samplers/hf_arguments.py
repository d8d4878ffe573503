"""The arguments of the ``hf`` sampler, checked without lm-eval's model, which imports slowly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gapft_harness.core.errors import UserError

#: lm-eval's own default is 1. With ``auto``, batches begin at the second number.
DEFAULT_BATCH_SIZE, AUTO_BATCH_SIZE = 64, 128

#: Arguments that conflict with exact token ids or adapters.
_UNSUPPORTED = {
    "peft": "give the folder of a merged model as pretrained",
    "truncation": "prompts are never cut silently",
    "tp_plan": "several processes for one model are not supported",
}


def check_arguments(model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse arguments that lm-eval accepts silently, and set ``device`` and ``batch_size``.

    Args:
        model_args: the recipe's ``model.args``.

    Returns:
        The arguments with these defaults.

    Raises:
        UserError: an argument is not supported, or this machine has no such device.
    """
    arguments = {key: value for key, value in model_args.items() if value is not None}
    for key, reason in _UNSUPPORTED.items():
        if arguments.get(key):
            raise UserError(f"model.args: {key!r} is not supported by the backend 'hf': {reason}")
    arguments.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    arguments.setdefault("batch_size", DEFAULT_BATCH_SIZE)
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    devices = ["cpu", "mps", "mps:0", *(["cuda", *gpus] if gpus else [])]
    if str(arguments["device"]) not in devices:  # lm-eval would choose a device itself
        raise UserError(
            f"model.args: device: found {arguments['device']!r}; expected {', '.join(devices)}, "
            "or nothing"
        )
    return arguments
