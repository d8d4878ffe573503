"""Describe a model: weights, versions, device, engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gapft_harness.core.extras import find_version
from gapft_harness.core.records import Adapter
from gapft_harness.core.weights import find_hub_commit, find_weights_folder, weights_hash

_LIBRARIES = ("lm_eval", "torch", "transformers", "peft", "tokenizers")


def describe_model(
    lm: Any, arguments: Mapping[str, Any], adapter: Adapter | None
) -> dict[str, Any]:
    """Describe a loaded ``HFLM`` in JSON values.

    Returns:
        The description. ``weights_sha256`` covers the content of every weight file
        (``weights_hash``).
    """
    return {
        "backend": "hf",
        "pretrained": arguments["pretrained"],
        "revision": find_hub_commit(arguments),
        "weights_sha256": weights_hash(find_weights_folder(arguments)),
        "architecture": type(lm.model).__name__,
        "parameters": int(lm.model.num_parameters()),
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        "device": str(lm.device),
        "batch_size": str(arguments["batch_size"]),
        "max_length": int(lm.max_length),
        "chat_template_sha256": hash_template(lm.tokenizer),
        "adapter": adapter and adapter.arm.name,
        "versions": {name: find_version(name) for name in _LIBRARIES},
    }


def describe_engine(
    lm: Any, arguments: Mapping[str, Any], adapter: Adapter | None
) -> dict[str, Any]:
    """Describe a running vLLM engine in JSON values.

    Returns:
        The description. ``engine`` has the settings that decide whether the same seeds give the
        same samples.
    """
    from vllm import envs
    from vllm.platforms import current_platform

    config = lm.model.llm_engine.vllm_config
    return {
        "backend": "vllm",
        "pretrained": arguments["pretrained"],
        "revision": find_hub_commit(arguments),
        "weights_sha256": weights_hash(find_weights_folder(arguments)),
        "architecture": config.model_config.architecture,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "device": current_platform.device_type,
        "max_length": int(lm.max_length),
        "chat_template_sha256": hash_template(lm.tokenizer),
        "adapter": adapter and adapter.arm.name,
        "engine": {
            "in_process": not envs.VLLM_ENABLE_V1_MULTIPROCESSING,
            "seeds": "one for each sample",
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "chunked_prefill": bool(config.scheduler_config.enable_chunked_prefill),
            "enforce_eager": bool(config.model_config.enforce_eager),
            "batch_invariant": bool(envs.VLLM_BATCH_INVARIANT),
            "max_num_seqs": int(config.scheduler_config.max_num_seqs),
            "max_num_batched_tokens": int(config.scheduler_config.max_num_batched_tokens),
            "tensor_parallel_size": int(config.parallel_config.tensor_parallel_size),
        },
        "versions": {name: find_version(name) for name in (*_LIBRARIES, "vllm")},
    }


def hash_template(tokenizer: Any) -> str | None:
    """Return the SHA-256 of a tokenizer's chat template; None without one."""
    template = tokenizer.chat_template
    return None if template is None else hashlib.sha256(str(template).encode()).hexdigest()
