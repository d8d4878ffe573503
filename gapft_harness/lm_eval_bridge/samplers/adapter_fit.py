"""Whether an adapter fits a model, by names and shapes alone: no weights of the model are read."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Adapter
from gapft_harness.lm_eval_bridge.samplers.retokenizer import first_line


@dataclass(frozen=True, slots=True)
class Named:
    """An adapter that is of no arm: a name, after which its logs' folder is called; its folder."""

    name: str
    path: str


#: A PEFT folder, and whose it is.
AdapterFolder = Adapter | Named


def check_adapter(adapter: AdapterFolder, arguments: Mapping[str, Any]) -> int:
    """Checks that each of a model's adapted layers has its weights in the folder, and no others.

    vLLM checks neither: it serves an adapter of a smaller model as if its missing rows were
    zeros, and one that lacks a layer as if that layer were the source's.

    Args:
        arguments: checked model arguments; ``pretrained`` names the base.

    Returns:
        The adapter's highest rank.

    Raises:
        UserError: the folder is no LoRA adapter, or one of another model.
    """
    folder = peft_folder(adapter)
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        kind = config.get("peft_type")
    except (OSError, ValueError, AttributeError) as error:
        raise misfit(adapter, arguments["pretrained"], first_line(error)) from error
    if kind != "LORA":
        raise UserError(
            f"{folder}: the adapter of {adapter.name} has the peft_type {kind!r}; expected LORA"
        )
    try:
        from peft import load_peft_weights

        weights = load_peft_weights(str(folder), device="cpu")
        found = {name: tuple(weight.shape) for name, weight in weights.items()}
        expected = _shapes_expected(folder, arguments)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise misfit(adapter, arguments["pretrained"], first_line(error)) from error
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise misfit(
                adapter,
                arguments["pretrained"],
                f"{name}: found {_text(found.get(name))}, expected {_text(expected.get(name))}",
            )
    return max(int(rank) for rank in (config["r"], *(config.get("rank_pattern") or {}).values()))


def _shapes_expected(folder: Path, arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What PEFT would save of the same adapter on this model; built without memory for weights."""
    import torch
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict
    from transformers import AutoConfig, AutoModelForCausalLM

    remote = bool(arguments.get("trust_remote_code", False))
    config = AutoConfig.from_pretrained(
        arguments["pretrained"],
        revision=str(arguments.get("revision", "main")),
        trust_remote_code=remote,
    )
    with warnings.catch_warnings(), torch.device("meta"):
        # Of tied embeddings and the like, where it was trained and not here.
        warnings.simplefilter("ignore")
        base = AutoModelForCausalLM.from_config(config, trust_remote_code=remote)
        wrapped = get_peft_model(base, PeftConfig.from_pretrained(str(folder)))
        weights = get_peft_model_state_dict(wrapped)
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def peft_folder(adapter: AdapterFolder) -> Path:
    """An adapter's folder.

    Raises:
        UserError: it is no adapter's.
    """
    folder = Path(adapter.path)
    if not (folder / "adapter_config.json").is_file():
        raise UserError(
            f"{folder}: is no adapter of {adapter.name}: no adapter_config.json found; "
            "expected a PEFT folder"
        )
    return folder


def misfit(adapter: AdapterFolder, model: str, why: str) -> UserError:
    """The error for an adapter of another model."""
    return UserError(
        f"{Path(adapter.path)}: the adapter of {adapter.name} does not fit the model "
        f"{model!r} ({why}); expected one that was trained on it"
    )


def _text(shape: tuple[int, ...] | None) -> str:
    return "no such weight" if shape is None else " x ".join(map(str, shape))
