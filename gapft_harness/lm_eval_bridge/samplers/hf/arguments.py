"""Checks of ``model_args`` for the ``hf`` model: what lm-eval would take in silence or garble."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.samplers.retokenizer import first_line

#: lm-eval's own default is 1.
DEFAULT_BATCH_SIZE = 64

#: Arguments whose effect this sampler cannot hold together with exact token ids or adapters.
_UNSUPPORTED = {
    "peft": "adapters come from the run's own training",
    "think_end_token": "the text would no longer be that of the generated ids",
    "enable_thinking": "use chat_template_args: {enable_thinking: …}",
    "truncation": "prompts are never cut in silence",
    "tp_plan": "several processes for one model are not supported",
}


def check_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks values that lm-eval does not, and sets the defaults of ``device`` and ``batch_size``.

    Raises:
        UserError: names the argument, what was found and what was expected.
    """
    arguments = {key: value for key, value in given.items() if value is not None}
    for key, why in _UNSUPPORTED.items():
        if arguments.get(key):
            raise UserError(f"model.args: {key!r} is not supported by the backend 'hf': {why}")
    for key in arguments:
        # What lm-eval does not know goes to transformers, which refuses it when weights are loaded.
        if key not in _known() and difflib.get_close_matches(key, _known(), n=1, cutoff=0.85):
            raise _unknown(key)
    arguments.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    arguments.setdefault("batch_size", DEFAULT_BATCH_SIZE)
    check_pretrained(arguments.get("pretrained"))
    _check_device(arguments["device"])
    _check_batch_size(arguments["batch_size"])
    check_dtype(arguments.get("dtype", "auto"))
    return arguments


def refused_argument(arguments: Mapping[str, Any], error: Exception) -> UserError:
    """The message for an error that lm-eval or transformers raised while loading."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown and unknown.group(1) in arguments:
        return _unknown(unknown.group(1))
    return UserError(
        f"model.args: pretrained: {arguments['pretrained']!r} cannot be loaded as a causal "
        f"language model ({first_line(error)}); give a model folder or a hub name"
    )


def _known() -> list[str]:
    known = inspect.signature(HFLM.__init__).parameters
    return sorted({*known, "device_map"} - {"self", "kwargs", *_UNSUPPORTED})


def _unknown(key: str) -> UserError:
    return UserError(f"model.args: unknown argument {key!r}; {did_you_mean(key, _known())}")


def check_pretrained(pretrained: Any) -> None:
    """Checks that a name can be that of a model: a folder with a config, or a hub name.

    Raises:
        UserError: it is neither.
    """
    if not isinstance(pretrained, str) or not pretrained:
        raise UserError(
            f"model.args: pretrained: found {pretrained!r}; expected a model folder or a hub name"
        )
    folder = Path(pretrained)
    if folder.exists() and not (folder / "config.json").is_file():
        raise UserError(
            f"model.args: pretrained: {pretrained!r} is no model folder: no config.json in it; "
            "give the folder that save_pretrained wrote, or a hub name"
        )
    # A hub name is NAME or OWNER/NAME; anything else can only be a path.
    looks_like_path = pretrained.startswith((".", "/", "~")) or pretrained.count("/") > 1
    if looks_like_path and not folder.exists():
        raise UserError(
            f"model.args: pretrained: no folder {pretrained!r}; give a model folder or a hub name"
        )


def check_dtype(dtype: Any) -> None:
    """Checks the name of a dtype.

    Raises:
        UserError: torch has none of that name.
    """
    if dtype != "auto" and not isinstance(getattr(torch, str(dtype), None), torch.dtype):
        raise UserError(
            f"model.args: dtype: found {dtype!r}; "
            f"{did_you_mean(str(dtype), ['auto', 'float32', 'bfloat16', 'float16'])}"
        )


def _check_device(device: Any) -> None:
    try:
        kind = torch.device(str(device)).type
    except RuntimeError as error:
        raise UserError(
            f"model.args: device: found {device!r}; expected cpu, cuda, cuda:1, mps, …"
        ) from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"model.args: device: found {device!r}, but torch sees no GPU here; expected cpu, or "
            "leave it out"
        )


def _check_batch_size(batch_size: Any) -> None:
    if re.fullmatch(r"auto(:\d+(\.\d+)?)?|[1-9]\d*", str(batch_size)) is None:
        raise UserError(
            f"model.args: batch_size: found {batch_size!r}; expected a whole number from 1, or auto"
        )
