"""Merge an adapter into a model's weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.progress_bars import hide_progress_bars
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import (
    AdapterFolder,
    misfit_error,
    require_peft_folder,
)
from gapft_harness.lm_eval_bridge.samplers.retokenizer import summarize_error

#: Arguments with which lm-eval loads quantized weights, or weights in parts: merging needs all
#: weights in the dtype of the search.
_UNMERGEABLE = (
    "load_in_4bit", "load_in_8bit", "quantization_config", "gptqmodel", "autogptq", "gguf_file",
    "delta",
)  # fmt: skip


def merge_adapter(model: Any, adapter: AdapterFolder, pretrained: str) -> Any:
    """Merge a PEFT adapter into a model's weights, in the dtype of the weights.

    Merged weights generate as fast as the source. Outputs equal those of lm-eval's ``peft=`` up to
    one rounding of each weight to the base dtype.

    Args:
        model: the loaded model; its weights are changed.
        adapter: the adapter.
        pretrained: the model's name, for messages.

    Raises:
        UserError: the folder is not an adapter, or does not fit the model.
    """
    from peft import PeftModel

    folder = require_peft_folder(adapter)
    try:
        with warnings.catch_warnings():
            # PEFT only warns about missing keys, and then generates like the source.
            warnings.filterwarnings("error", message=".*missing adapter keys.*")
            merged = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError, UserWarning) as error:
        raise misfit_error(adapter, pretrained, summarize_error(error)) from error
    return merged.eval()


def check_mergeable(arguments: Mapping[str, Any]) -> None:
    """Check that an adapter can be merged into the model of these arguments.

    Raises:
        UserError: it is on a server, or its weights are quantized.
    """
    if "base_url" in arguments:
        raise UserError(
            "model.args: peft: a server's model cannot be merged; serve the merged model, or use "
            "the backend hf or vllm"
        )
    for key in _UNMERGEABLE:
        if arguments.get(key):
            raise UserError(
                f"model.args: peft: conflicts with {key!r}: an adapter is merged into weights that "
                f"are not quantized; remove {key}, or give the merged model as pretrained"
            )


def save_merged_weights(arguments: Mapping[str, Any], adapter: AdapterFolder, out: Path) -> str:
    """Load a base on the CPU, merge an adapter, and save weights and config.

    The same inputs give the same bytes.

    Args:
        arguments: the base's model arguments (``pretrained``, ``dtype``, ``revision``, …).
        adapter: the adapter.
        out: the folder to write to.

    Returns:
        The dtype of the weights.

    Raises:
        UserError: no model at ``pretrained``, or the adapter does not fit it.
    """
    from transformers import GenerationConfig

    model = _load_base(arguments)
    if getattr(model.config, "quantization_config", None) is not None:
        raise UserError(
            f"model.args: peft: {arguments['pretrained']!r} is quantized; an adapter is merged "
            "into weights that are not quantized"
        )
    merged = merge_adapter(model, adapter, str(arguments["pretrained"]))
    # a contradictory generation_config would be refused; the base's own file is copied later
    merged.generation_config = GenerationConfig()
    with hide_progress_bars():
        merged.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    return str(merged.dtype).removeprefix("torch.")


def download_model(arguments: Mapping[str, Any]) -> None:
    """Load a model and its tokenizer, so that the hub's cache has the files that they need."""
    from transformers import AutoTokenizer

    _load_base(arguments)
    AutoTokenizer.from_pretrained(arguments["pretrained"], **_select_options(arguments))


def _load_base(arguments: Mapping[str, Any]) -> Any:
    """Load a base on the CPU, in the dtype of the search."""
    from transformers import AutoModelForCausalLM

    pretrained = str(arguments["pretrained"])
    try:
        with hide_progress_bars():
            return AutoModelForCausalLM.from_pretrained(
                pretrained, dtype=arguments.get("dtype") or "auto", **_select_options(arguments)
            )
    except MemoryError:
        raise
    except Exception as error:  # errors about a refused config have no common class
        raise UserError(
            f"model.args: pretrained: cannot load {pretrained!r} as a causal language model "
            f"({summarize_error(error)}); expected a model folder or a hub name"
        ) from error


def _select_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("revision", "subfolder", "trust_remote_code")
    return {key: arguments[key] for key in keys if arguments.get(key) is not None}
