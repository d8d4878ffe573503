"""Merge an adapter into a model's weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import is_out_of_memory, summarize_error
from gapft_harness.core.pretrained import load_model
from gapft_harness.core.records import Adapter
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import misfit_error, require_peft_folder


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
    from transformers import GenerationConfig

    model = load_model(arguments, dtype=arguments.get("dtype") or "auto")
    merged = merge_adapter(model, adapter, str(arguments["pretrained"]))
    # a contradictory generation_config would be refused; the base's own file is copied later
    merged.generation_config = GenerationConfig()
    merged.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
