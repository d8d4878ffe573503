"""The ``vllm`` sampler: lm-eval's vLLM model with a seed for every sample and served adapters.

lm-eval's class creates the engine and encodes prompts. Its ``generate_until`` returns only text and
uses the same settings for all repeats of a request, so generation calls the engine directly.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, get_args

from lm_eval.models.vllm_causallms import VLLM
from tqdm import tqdm
from vllm import SamplingParams, TokensPrompt, envs
from vllm.config.lora import MaxLoRARanks
from vllm.exceptions import VLLMError
from vllm.platforms import current_platform

from gapft_harness.core.errors import UserError, summarize_error
from gapft_harness.core.pretrained import load_generation_config
from gapft_harness.core.records import Adapter, Decoding
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import check_adapter
from gapft_harness.lm_eval_bridge.samplers.endings import (
    build_generated,
    cut_response,
    find_end_ids,
    format_ignored_entries,
    split_generation_config,
)
from gapft_harness.lm_eval_bridge.samplers.lm_sampler import LmSampler
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, replace_start_ids
from gapft_harness.lm_eval_bridge.samplers.text import find_fitting
from gapft_harness.lm_eval_bridge.samplers.vllm.process import release_engine

#: Arguments that conflict with this sampler's guarantees.
_UNSUPPORTED = {
    "lora_local_path": "adapters come from the run's own training",
    "enable_lora": "it is set when an adapter is served",
    "max_lora_rank": "it is set from the adapter's rank",
    "seed": "every sample has its own seed, from search.seed",
    "truncation_side": "prompts are never cut silently",
}

#: Size of the CPU engine's key-value cache in bytes. vLLM's default is nearly all memory.
_CPU_CACHE_BYTES = 2**30


def check_arguments(model_args: Mapping[str, Any]) -> dict[str, Any]:
    """Check arguments that lm-eval or vLLM would silently accept, and set defaults.

    ``batch_size`` becomes ``max_num_seqs``; ``device`` is for training alone.

    Raises:
        UserError: invalid argument; the message has the name, the value and what was expected.
    """
    arguments = {key: value for key, value in model_args.items() if value is not None}
    for key, reason in _UNSUPPORTED.items():
        if key in arguments:
            raise UserError(f"model.args: {key!r} is not supported by the backend 'vllm': {reason}")
    if _parse_number(arguments.pop("data_parallel_size", 1), "data_parallel_size") != 1:
        raise UserError(
            "model.args: data_parallel_size: expected 1: lm_eval's parallel engines share one "
            "seed, so they repeat samples; set executor.workers instead (one process each)"
        )
    arguments.pop("device", None)
    batch_size = arguments.pop("batch_size", "auto")
    if not str(batch_size).startswith("auto"):
        arguments.setdefault("max_num_seqs", _parse_number(batch_size, "batch_size"))
    arguments.setdefault("enable_prefix_caching", True)
    if current_platform.is_cpu():
        _set_cpu_defaults(arguments)
    return arguments


def _set_cpu_defaults(arguments: dict[str, Any]) -> None:
    """Set defaults without which the CPU engine uses all memory, compiles, or fails with seeds.

    After a partial prefill of a prompt, the model runner of vLLM 0.32.0 resets the random generator
    to undo a draw, which is not possible for a generator on the CPU.

    Raises:
        UserError: ``enable_chunked_prefill`` is set.
    """
    arguments.setdefault("enforce_eager", True)
    if arguments.setdefault("enable_chunked_prefill", False):
        raise UserError(
            "model.args: enable_chunked_prefill: found True; expected False: on CPU, vLLM does not "
            "support chunked prefill for requests with a seed"
        )
    sized = {"kv_cache_memory_bytes", "gpu_memory_utilization"} & arguments.keys()
    if not sized and "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
        arguments["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES


def _parse_number(value: Any, key: str) -> int:
    text = str(value)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"model.args: {key}: found {value!r}; expected a whole number from 1")
    return int(text)


#: Exceptions of an engine that cannot start, besides vLLM's own errors.
_START_ERRORS = (TypeError, ValueError, OSError, RuntimeError, ImportError, AssertionError)


class VllmSampler(LmSampler):
    """A vLLM engine in this process; call ``process.prepare_process`` first.

    Each sample is a separate request with its own seed. (One request for K samples is not faster:
    within 5% in a measurement.)

    Each call of ``generate`` begins with an empty prefix cache, so its responses do not depend on
    earlier calls; within a call, common prefixes of prompts are computed once.
    """

    backend = "vllm"
    libraries = ("vllm",)

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Start the engine, with an adapter if given.

        Args:
            settings: ``model_args`` as for ``lm_eval --model vllm``.
            adapter: a PEFT folder to serve, or None for the source model.

        Raises:
            UserError: invalid argument, no model at ``pretrained``, or an invalid adapter or one of
                a different model.
        """
        arguments = check_arguments(settings.model_args)
        self._retokenizer = Retokenizer(settings)
        self._start_ids = self._retokenizer.start_ids
        lora = _build_lora_arguments(adapter, arguments) if adapter else {}
        generation_config = load_generation_config(arguments)
        _, self._ignored = split_generation_config(generation_config.to_diff_dict())
        # lm-eval's class removes enable_thinking from chat_template_args, which render prompts here
        engine_arguments = {k: v for k, v in arguments.items() if k != "chat_template_args"}
        try:
            self._lm: Any = VLLM.create_from_arg_obj(engine_arguments | lora)
            if adapter:
                # Load it now, so that unsupported modules are found before any generation.
                self._lm.model.llm_engine.add_lora(self._lm.lora_request)
        except (*_START_ERRORS, VLLMError) as error:
            raise UserError(
                f"model.args: vLLM cannot serve {arguments['pretrained']!r}"
                f"{f' with the adapter {adapter.path}' if adapter else ''}: "
                f"{_describe_root_cause(error)}"
            ) from error
        self._own_end_ids = self._find_own_end_ids(generation_config, settings)
        self._notes = (
            [format_ignored_entries(arguments["pretrained"], self._ignored)]
            if self._ignored
            else []
        )
        self._settings = settings
        self._arguments = arguments
        self._adapter = adapter

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Generate the responses to every request, in order; see ``protocols.Sampler``.

        A prompt that does not fit with ``max_gen_toks`` new tokens gets ``beyond_context``.

        Raises:
            UserError: a prompt is empty, or vLLM refuses the decoding.
        """
        while self._notes:
            report(0, 0, self._notes.pop(0))
        if not requests:
            return []
        # Encode the prompts
        prompts = self._encode_prompts(requests, decoding)
        ends = find_end_ids(self._lm.tokenizer, self._own_end_ids, decoding.until)
        stops = [*decoding.until, self._lm.tokenizer.eos_token or ""]
        # One input for each response, with the seed of its stream
        settings = {
            row_decoding: _build_sampling(row_decoding, [stop for stop in stops if stop], ends)
            for row_decoding in {
                decoding.for_index(index) for request in requests for index in request.indices
            }
        }
        inputs = [
            (
                TokensPrompt(prompt_token_ids=ids),
                SamplingParams(**settings[decoding.for_index(index)], seed=seed),
            )
            for request, ids in zip(requests, prompts, strict=True)
            if ids is not None
            for index, seed in zip(request.indices, request.seeds, strict=True)
        ]
        # Generate, and gather the responses of each request
        self._lm.model.reset_prefix_cache()
        outputs = iter(
            self._lm.model.generate(
                [prompt for prompt, _ in inputs],
                [params for _, params in inputs],
                use_tqdm=partial(_ReportingBar, report),
                lora_request=self._lm.lora_request,
            )
        )
        return [
            build_generated(
                ids,
                self._retokenizer.render(request),
                (
                    self._build_generation(output, stops, ends)
                    for output in islice(outputs, len(request.indices))
                ),
            )
            if ids is not None
            else beyond_context(request)
            for request, ids in zip(requests, prompts, strict=True)
        ]

    def _describe_engine(self) -> dict[str, Any]:
        """Describe the engine; ``engine`` decides whether the same seeds give the same samples."""
        config = self._lm.model.llm_engine.vllm_config
        return {
            "architecture": config.model_config.architecture,
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "device": current_platform.device_type,
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
        }

    def close(self) -> None:
        """Shut the engine down and release its memory. Closing twice has no further effect."""
        if self._lm is not None:
            release_engine(self._lm)
            self._lm = None

    def _encode_prompts(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[list[int] | None]:
        """Encode each request's prompt; None if it does not fit. Equal prompts are encoded once."""
        texts = [self._retokenizer.render(request) for request in requests]
        unique = list(dict.fromkeys(texts))
        ids_of = {
            text: replace_start_ids(ids, self._start_ids)
            for text, ids in zip(unique, self._lm.tok_encode(unique), strict=True)
        }
        lengths = [len(ids_of[text]) for text in texts]
        fits = find_fitting(requests, lengths, decoding, int(self._lm.max_length))
        return [ids_of[text] if fit else None for text, fit in zip(texts, fits, strict=True)]

    def _build_generation(self, output: Any, stops: list[str], ends: list[int]) -> Generation:
        """Build a response from a finished request, without end token and stop string."""
        [completion] = output.outputs
        if completion.finish_reason not in ("stop", "length"):
            raise RuntimeError(
                f"vLLM: finish_reason is {completion.finish_reason!r}; expected stop or length"
            )
        generation = cut_response(completion.token_ids, ends, stops, self._decode)
        if completion.finish_reason == "stop" and generation.finish_reason == "length":
            generation = dataclasses.replace(generation, finish_reason="stop")
        return generation

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._lm.tokenizer.decode(ids, skip_special_tokens=True)
        return text


class _ReportingBar(tqdm):  # type: ignore[misc]
    """A progress bar for vLLM that reports progress and draws nothing."""

    def __init__(self, report: ReportGeneration, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"file": io.StringIO(), "mininterval": 0})
        self._report = report

    def update(self, n: float | None = 1) -> bool | None:
        """Report processed requests; vLLM has a separate bar for added requests."""
        drawn: bool | None = super().update(n)
        if "process" in (self.desc or "").lower():
            self._report(int(self.n), 0)
        return drawn


def _build_sampling(decoding: Decoding, stops: list[str], ends: list[int]) -> dict[str, Any]:
    """Convert a decoding to vLLM's settings, without the model's generation_config.

    Raises:
        UserError: vLLM refuses the decoding or would change its temperature.
    """
    settings = {
        "max_tokens": decoding.max_gen_toks,
        "stop": stops,
        "stop_token_ids": ends,
        "temperature": 0.0,
    }
    if decoding.do_sample:
        settings |= {
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "top_k": decoding.top_k,
        }
    try:
        temperature = SamplingParams(**settings).temperature
    except (ValueError, VLLMError) as error:
        raise UserError(f"search: vLLM refuses the decoding: {summarize_error(error)}") from error
    if temperature != settings["temperature"]:
        section = "search.deployment" if decoding.samples_deployment else "search"
        raise UserError(
            f"{section}.temperature: found {decoding.temperature}, which vLLM would raise to "
            f"{temperature}; expected at least {temperature}, or a greedy decode"
        )
    return settings


def _build_lora_arguments(adapter: Adapter, arguments: dict[str, Any]) -> dict[str, Any]:
    """Build the arguments for lm-eval's class to serve an adapter, with the lowest rank limit."""
    rank = check_adapter(adapter, arguments)
    fitting = [limit for limit in sorted(get_args(MaxLoRARanks)) if limit >= rank]
    if not fitting:
        raise UserError(
            f"{adapter.path}: rank {rank} is not supported; vLLM serves ranks up to "
            f"{max(get_args(MaxLoRARanks))}; use the backend hf, which has no limit"
        )
    return {"lora_local_path": adapter.path, "max_lora_rank": fitting[0]}


def _describe_root_cause(error: BaseException) -> str:
    """Describe the root cause of an engine's failure, since its own message only refers to it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return summarize_error(error)
