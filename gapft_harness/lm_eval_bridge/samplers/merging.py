"""Merge an adapter into a model's weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Adapter
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import misfit_error, require_peft_folder
from gapft_harness.lm_eval_bridge.samplers.batch_sizes import is_out_of_memory
from gapft_harness.lm_eval_bridge.samplers.retokenizer import summarize_error


def merge_adapter(model: Any, adapter: Adapter, pretrained: str) -> Any:
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
        if is_out_of_memory(error):  # not a fault of the adapter
            raise
        raise misfit_error(adapter, pretrained, summarize_error(error)) from error
    return merged.eval()


def save_merged_weights(arguments: Mapping[str, Any], adapter: Adapter, out: Path) -> None:
    """Load a base on the CPU, merge an adapter, and save weights and config.

    No tokenizer and no generation config are written; the caller copies the base's.

    Args:
        arguments: the base's model arguments, of which ``pretrained``, ``dtype``, ``revision``,
            ``subfolder`` and ``trust_remote_code`` are used.
        adapter: the adapter.
        out: the folder to write to.

    Raises:
        UserError: no model at ``pretrained``, or the adapter does not fit it.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    pretrained = str(arguments["pretrained"])
    keys = ("revision", "subfolder", "trust_remote_code")
    options = {key: arguments[key] for key in keys if arguments.get(key) is not None}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            pretrained, dtype=arguments.get("dtype") or "auto", **options
        )
    except Exception as error:  # errors about a refused config have no common class
        if is_out_of_memory(error):  # not a fault of the model
            raise
        raise UserError(
            f"model.args: pretrained: cannot load {pretrained!r} as a causal language model "
            f"({summarize_error(error)}); expected a model folder or a hub name"
        ) from error
    merged = merge_adapter(model, adapter, pretrained)
    # a contradictory generation_config would be refused; the base's own file is copied later
    merged.generation_config = GenerationConfig()
    merged.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
