"""Load a pretrained model's config, tokenizer and weights with transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import UserError, is_out_of_memory, summarize_error

#: Arguments of a model that say where its files are.
_PLACE = ("revision", "subfolder", "trust_remote_code")


class ModelNotLoaded(UserError):
    """A model or tokenizer that is missing, or that transformers refuses."""


def load_tokenizer(model_args: Mapping[str, Any], **options: Any) -> Any:
    """Load the tokenizer that ``tokenizer`` names, or else the model's own.

    Args:
        model_args: the model's arguments.
        options: further options of transformers.

    Raises:
        ModelNotLoaded: there is none, or it cannot be loaded.
    """
    from transformers import AutoTokenizer

    key = "tokenizer" if model_args.get("tokenizer") else "pretrained"
    return _load(AutoTokenizer, model_args, key, **options)


def load_config(model_args: Mapping[str, Any]) -> Any:
    """Load a model's config.

    Raises:
        ModelNotLoaded: there is none, or transformers refuse it.
    """
    from transformers import AutoConfig

    return _load(AutoConfig, model_args)


def load_generation_config(model_args: Mapping[str, Any]) -> Any:
    """Load a model's generation_config; if it has none, derive it from the config as transformers.

    Raises:
        ModelNotLoaded: there is no model, or transformers refuse its config.
    """
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(
            model_args["pretrained"], **_select_place(model_args)
        )
    except OSError:
        return GenerationConfig.from_model_config(load_config(model_args))


def load_model(model_args: Mapping[str, Any], **options: Any) -> Any:
    """Load a causal language model.

    Args:
        model_args: the model's arguments.
        options: further options of transformers, such as its dtype.

    Raises:
        ModelNotLoaded: there is none, or it cannot be loaded.
    """
    from transformers import AutoModelForCausalLM

    return _load(AutoModelForCausalLM, model_args, **options)


def build_meta_model(model_args: Mapping[str, Any], **options: Any) -> Any:
    """Build a model from its config on torch's meta device: shapes without memory.

    Args:
        model_args: the model's arguments.
        options: further options of transformers, such as its dtype.

    Raises:
        ModelNotLoaded: there is no model, or it cannot be built.
    """
    import torch
    from transformers import AutoModelForCausalLM

    options["trust_remote_code"] = model_args.get("trust_remote_code", False)
    config = load_config(model_args)
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, **options)
    except Exception as error:  # errors of a bad config have no common class
        raise _build_error(model_args, "pretrained", error) from error


def to_id_list(value: int | list[int] | None) -> list[int]:
    """Convert token ids of a transformers config (one, several or None) to a list."""
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def _load(kind: Any, model_args: Mapping[str, Any], key: str = "pretrained", **options: Any) -> Any:
    try:
        return kind.from_pretrained(model_args[key], **_select_place(model_args), **options)
    except Exception as error:  # errors of a bad config have no common class
        if is_out_of_memory(error):  # not a fault of the model
            raise
        raise _build_error(model_args, key, error) from error


def _select_place(model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Select the arguments about the model's place; a key without a value is left out."""
    place = {key: model_args[key] for key in _PLACE if model_args.get(key) is not None}
    if "revision" in place:
        place["revision"] = str(place["revision"])  # which YAML may have read as a number
    return place


def _build_error(model_args: Mapping[str, Any], key: str, error: Exception) -> ModelNotLoaded:
    return ModelNotLoaded(
        f"model.args: {key}: {str(model_args[key])!r} cannot be loaded "
        f"({summarize_error(error)}); expected a model folder or a hub name"
    )
