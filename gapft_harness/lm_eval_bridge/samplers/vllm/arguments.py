"""Checks of ``model_args`` for the ``vllm`` model, and the engine's defaults where it has a CPU."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Mapping
from typing import Any

from lm_eval.models.vllm_causallms import VLLM
from vllm import LLM
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.samplers.hf.arguments import check_dtype, check_pretrained

#: Arguments whose effect this sampler cannot hold together with its promises.
_UNSUPPORTED = {
    "lora_local_path": "adapters come from the run's own training",
    "enable_lora": "it is set where an adapter is served",
    "max_lora_rank": "it is set from the adapter's own rank",
    "seed": "every sample has a seed of its own, from search.seed",
    "think_end_token": "the text would no longer be that of the generated ids",
    "enable_thinking": "use chat_template_args: {enable_thinking: …}",
    "truncation_side": "prompts are never cut in silence",
}

#: Bytes of the CPU engine's cache of keys and values. Its own default is nearly all of the memory.
_CPU_CACHE = 2**30


def check_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks what lm-eval or vLLM would take in silence, and sets defaults.

    ``batch_size`` becomes ``max_num_seqs``, and ``device`` is dropped once it is known to be the
    one that vLLM uses.

    Raises:
        UserError: names the argument, what was found and what was expected.
    """
    arguments = {key: value for key, value in given.items() if value is not None}
    for key, why in _UNSUPPORTED.items():
        if key in arguments:
            raise UserError(f"model.args: {key!r} is not supported by the backend 'vllm': {why}")
    known = _known_arguments()
    for key in arguments:
        if key not in known:
            raise UserError(f"model.args: unknown argument {key!r}; {did_you_mean(key, known)}")
    if _number(arguments.pop("data_parallel_size", 1), "data_parallel_size") != 1:
        raise UserError(
            "model.args: data_parallel_size: expected 1; lm_eval's parallel engines share one "
            "seed, and deal the same samples twice; search in shards instead, a process each"
        )
    check_pretrained(arguments.get("pretrained"))
    check_dtype(arguments.get("dtype", "auto"))
    _check_device(arguments.pop("device", None))
    batch_size = arguments.pop("batch_size", "auto")
    if not str(batch_size).startswith("auto"):
        arguments.setdefault("max_num_seqs", _number(batch_size, "batch_size"))
    arguments.setdefault("enable_prefix_caching", True)
    if current_platform.is_cpu():
        _set_cpu_defaults(arguments)
    return arguments


def _set_cpu_defaults(arguments: dict[str, Any]) -> None:
    """Defaults without which the CPU engine takes all memory, compiles, or fails at a seed.

    A prompt prefilled in parts has its draws for unfinished parts undone by setting the random
    generator back, which a generator on CPU cannot do (the GPU model runner of vLLM 0.32.0).
    """
    arguments.setdefault("enforce_eager", True)
    if arguments.setdefault("enable_chunked_prefill", False):
        raise UserError(
            "model.args: enable_chunked_prefill: found True; expected False: on CPU, vLLM cannot "
            "prefill a prompt in parts for a request that has a seed"
        )
    sized = {"kv_cache_memory_bytes", "gpu_memory_utilization"} & arguments.keys()
    if not sized and "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
        arguments["kv_cache_memory_bytes"] = _CPU_CACHE


def _known_arguments() -> set[str]:
    """The names that lm-eval's class takes, itself or for vLLM's."""
    own = set(inspect.signature(VLLM.__init__).parameters)
    engine = set(inspect.signature(LLM.__init__).parameters)
    engine |= {field.name for field in dataclasses.fields(EngineArgs)}
    return (own | engine | {"device"}) - {"self", "kwargs", "model", *_UNSUPPORTED}


def _check_device(device: Any) -> None:
    kind = current_platform.device_type
    if device is not None and str(device).split(":")[0] != kind:
        raise UserError(
            f"model.args: device: found {device!r}, but vLLM runs on {kind!r} here; leave it out "
            "(CUDA_VISIBLE_DEVICES chooses among GPUs)"
        )
    if device is not None and ":" in str(device):
        raise UserError(
            f"model.args: device: found {device!r}; vLLM takes no number: set "
            "CUDA_VISIBLE_DEVICES, and leave it out"
        )


def _number(value: Any, key: str) -> int:
    text = str(value)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"model.args: {key}: found {value!r}; expected a whole number from 1")
    return int(text)
