"""Check that an adapter fits a model by names and shapes, without reading the model's weights."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError, summarize_error
from gapft_harness.core.pretrained import build_meta_model
from gapft_harness.core.records import Adapter


def check_adapter(adapter: Adapter, arguments: Mapping[str, Any]) -> int:
    """Check that the folder has weights for exactly the adapted layers of the model.

    vLLM does not check this: it treats missing rows of a smaller model's adapter as zeros, and
    uses the source's layer for a missing one.

    Args:
        adapter: the adapter.
        arguments: checked model arguments; ``pretrained`` is the base model.

    Returns:
        The adapter's highest rank.

    Raises:
        UserError: the folder is not a LoRA adapter, or it belongs to a different model.
    """
    folder = require_peft_folder(adapter)
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        kind = config.get("peft_type")
    except (OSError, ValueError, AttributeError) as error:
        raise misfit_error(adapter, arguments["pretrained"], summarize_error(error)) from error
    if kind != "LORA":
        raise UserError(
            f"{folder}: adapter of {adapter.name}: peft_type is {kind!r}; expected LORA"
        )
    try:
        from peft import load_peft_weights

        weights = load_peft_weights(str(folder), device="cpu")
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        expected_shapes = _compute_expected_shapes(folder, arguments)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise misfit_error(adapter, arguments["pretrained"], summarize_error(error)) from error
    for name in sorted(shapes.keys() | expected_shapes.keys()):
        if shapes.get(name) != expected_shapes.get(name):
            raise misfit_error(
                adapter,
                arguments["pretrained"],
                f"{name}: found {_format_shape(shapes.get(name))}, expected "
                f"{_format_shape(expected_shapes.get(name))}",
            )
    return max(int(rank) for rank in (config["r"], *(config.get("rank_pattern") or {}).values()))


def _compute_expected_shapes(
    folder: Path, arguments: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of this adapter's weights on this model, built on the meta device."""
    import torch
    from peft import PeftConfig, get_peft_model, get_peft_model_state_dict

    base = build_meta_model(arguments)
    with warnings.catch_warnings(), torch.device("meta"):
        # About tied embeddings and the like: they matter for training, not for shapes.
        warnings.simplefilter("ignore")
        wrapped = get_peft_model(base, PeftConfig.from_pretrained(str(folder)))
        weights = get_peft_model_state_dict(wrapped)
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def require_peft_folder(adapter: Adapter) -> Path:
    """Return an adapter's folder.

    Raises:
        UserError: the folder holds no adapter.
    """
    folder = Path(adapter.path)
    if not (folder / "adapter_config.json").is_file():
        raise UserError(
            f"{folder}: adapter of {adapter.name}: adapter_config.json not found; "
            "expected a PEFT folder"
        )
    return folder


def misfit_error(adapter: Adapter, model: str, reason: str) -> UserError:
    """Build the error for an adapter of a different model."""
    return UserError(
        f"{Path(adapter.path)}: the adapter of {adapter.name} does not fit the model "
        f"{model!r} ({reason}); expected an adapter trained on this model"
    )


def _format_shape(shape: tuple[int, ...] | None) -> str:
    return "no such weight" if shape is None else " x ".join(map(str, shape))
