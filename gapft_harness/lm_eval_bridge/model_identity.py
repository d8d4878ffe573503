"""What a manifest says of a Hugging Face model: which weights, which versions, which device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gapft_harness.model_files import weights_folder, weights_hash
from gapft_harness.records import Adapter

_LIBRARIES = ("lm_eval", "torch", "transformers", "peft", "tokenizers")


def describe_model(
    lm: Any, arguments: Mapping[str, Any], adapter: Adapter | None
) -> dict[str, Any]:
    """Facts about a loaded ``HFLM``, JSON values only.

    Args:
        lm: the loaded model.
        arguments: the model arguments it was created with.
        adapter: the adapter merged into it, if any.

    Returns:
        ``weights_sha256`` is over the content of every weight file (``weights_hash``), read
        whole: seconds per 10 GB.
    """
    template = lm.tokenizer.chat_template
    if template is not None:
        template = hashlib.sha256(str(template).encode()).hexdigest()
    return {
        "backend": "hf",
        "pretrained": arguments["pretrained"],
        "revision": getattr(lm.config, "_commit_hash", None),
        "weights_sha256": weights_hash(weights_folder(arguments)),
        "architecture": type(lm.model).__name__,
        "parameters": int(lm.model.num_parameters()),
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        "device": str(lm.device),
        "batch_size": str(lm.batch_size),
        "max_length": int(lm.max_length),
        "end_ids": lm.end_ids(()),
        "chat_template_sha256": template,
        "generation_config_ignored": {k: str(v) for k, v in lm.ignored_generation_config.items()},
        "adapter": adapter
        and {
            "arm": adapter.arm.name,
            "weights_sha256": weights_hash(Path(adapter.path)),
            "merged": True,
        },
        "versions": {name: _version(name) for name in _LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
