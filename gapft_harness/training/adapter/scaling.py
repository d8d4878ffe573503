"""A trained adapter at another scale: θ0 + αΔ, by multiplying lora_B once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from gapft_harness.core.errors import UserError
from gapft_harness.core.weights import weights_hash
from gapft_harness.training.adapter.folder import whole_folder

_CARD = """---
base_model: {base_model}
library_name: peft
tags: [gapft-harness, lora]
---

# {condition}, seed {seed}, at scale {scale:g}

The LoRA adapter of `{condition}`, seed {seed}, with its update multiplied by {scale:g}. No weight
was trained again. The scale is the largest of 0.25, 0.5, 0.75 and 1 at which, and at every smaller
one, an upper bound on the share of solved problems that are lost is at most {tolerance:g}; 0, the
source itself, where there is none. `scaling.json` has the counts and bounds that it was chosen by.

Load it with lm-eval:

    lm_eval --model hf --model_args pretrained={base_model},peft=THIS_FOLDER --tasks TASK
"""


#: Settings under which an adapter's update is its lora_B times its lora_A; the first is PEFT's own.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "bias": ("none",),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}
_A, _B = ("lora_A", "lora_embedding_A"), ("lora_B", "lora_embedding_B")


def _check_scalable(folder: Path) -> None:
    """Stops if an adapter's update is no multiple of its lora_B.

    Raises:
        UserError: it is no plain LoRA adapter; the message names the key of its configuration.
    """
    path = folder / "adapter_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}; expected a PEFT folder") from error
    for key, allowed in _PLAIN.items():
        if config.get(key, allowed[0]) not in allowed:
            raise UserError(
                f"{path}: {key} is {config[key]!r}, so multiplying lora_B does not scale the "
                f"whole update; expected {allowed[0]!r}"
            )


def scale_adapter(folder: Path, output: Path, scale: float, facts: Mapping[str, Any]) -> None:
    """Writes a PEFT folder whose update is ``scale`` times another's.

    The same input gives the same bytes.

    Args:
        folder: the adapter, as PEFT writes it.
        output: the folder to make; it does not exist yet, and is there whole or not at all.
        scale: α; at 0 the model is the source.
        facts: of ``scaling.json``; with the key ``base_model`` a model card is written too.
            ``adapter_sha256``, the hash of the weights that are written, is added.

    Raises:
        UserError: ``folder`` is no plain LoRA adapter.
        GapftError: the folder cannot be written; nothing is left then.
    """
    from peft import load_peft_weights

    _check_scalable(folder)
    try:
        weights = load_peft_weights(str(folder), device="cpu")
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: its weights cannot be read: {error}") from error
    with whole_folder(output) as partial:
        scaled = {
            name: (weight * scale if _is_b(name, folder) else weight).contiguous()
            for name, weight in weights.items()
        }
        save_file(scaled, partial / "adapter_model.safetensors", metadata={"format": "pt"})
        shutil.copyfile(folder / "adapter_config.json", partial / "adapter_config.json")
        written = {**facts, "adapter_sha256": weights_hash(partial)}
        (partial / "scaling.json").write_text(json.dumps(written, indent=1) + "\n", "utf-8")
        if "base_model" in facts:
            (partial / "README.md").write_text(_CARD.format(**facts), encoding="utf-8")


def _is_b(name: str, folder: Path) -> bool:
    """Whether a weight is a lora_B, of a linear layer or of an embedding; else it is a lora_A."""
    parts = name.split(".")
    if not any(part in parts for part in _A + _B):
        raise UserError(
            f"{folder}: holds the weight {name}, so multiplying lora_B does not scale the whole "
            "update; expected lora_A and lora_B alone"
        )
    return any(part in parts for part in _B)
