"""The ``hf`` sampler: lm-eval's Hugging Face model with exact token ids and merged adapters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache
from lm_eval.models.huggingface import HFLM
from transformers import GenerationConfig

from gapft_harness.core.cpu import describe_slow_dtype
from gapft_harness.core.errors import GapftError, UserError, is_out_of_memory, summarize_error
from gapft_harness.core.records import BLOCK, Adapter, Decoding
from gapft_harness.core.turn_end import check_vocabulary
from gapft_harness.hooks.protocols import (
    Generated,
    ReportGeneration,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.batch_sizes import generate_in_batches
from gapft_harness.lm_eval_bridge.samplers.decode_loop import (
    NO_PROMPT_CACHE,
    DecodeLoop,
    Row,
    StopRules,
)
from gapft_harness.lm_eval_bridge.samplers.endings import (
    build_generated,
    cut_response,
    find_end_ids,
    format_ignored_entries,
    require_end_ids,
    split_generation_config,
)
from gapft_harness.lm_eval_bridge.samplers.hf_arguments import AUTO_BATCH_SIZE, check_arguments
from gapft_harness.lm_eval_bridge.samplers.lm_sampler import LmSampler
from gapft_harness.lm_eval_bridge.samplers.merging import merge_adapter
from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
    check_chat_settings,
    find_start_ids,
    render_request,
    replace_start_ids,
)
from gapft_harness.lm_eval_bridge.samplers.text import find_fitting


def neutralise_generation_config(model: Any) -> dict[str, Any]:
    """Replace a model's generation_config by one without sampling settings.

    Returns:
        The ignored entries that no decoding sets, by name.
    """
    kept_entries, ignored = split_generation_config(model.generation_config.to_diff_dict())
    model.generation_config = GenerationConfig(**kept_entries)
    return ignored


class HfSampler(LmSampler):
    """A Transformers model, loaded by lm-eval's ``hf`` model and decoded by ``DecodeLoop``.

    A sample depends on its prompt and its seed; the other requests of a call change it only by
    rounding.
    """

    backend = "hf"

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Load the model, and merge the adapter into its weights.

        Args:
            settings: ``model_args`` as for ``lm_eval --model hf``; ``device`` defaults to cuda
                if available, else cpu, and ``batch_size`` to 64.
            adapter: a PEFT folder to merge, or None for the source model.

        Raises:
            UserError: invalid argument, no model at ``pretrained``, a missing start token,
                or an invalid adapter or one of a different model.
        """
        # Load the model as lm-eval does
        check_chat_settings(settings)
        torch.set_num_threads(settings.threads)
        arguments = check_arguments(settings.model_args)
        try:
            self._lm: Any = HFLM.create_from_arg_obj(arguments)
        except GapftError:
            raise
        except Exception as error:  # errors about a refused config have no common class
            if is_out_of_memory(error):
                raise
            raise UserError(
                f"model.args: cannot load {arguments['pretrained']!r} as a causal language model: "
                f"{summarize_error(error)}"
            ) from error
        if self._lm.backend != "causal":
            raise UserError(
                f"model.args: pretrained: {arguments['pretrained']!r}: found an encoder-decoder; "
                "expected a decoder-only (causal) model"
            )
        # Find the tokens that begin prompts and end responses
        self._start_ids = find_start_ids(self._lm.tokenizer, settings)
        self._own_end_ids = self._find_own_end_ids(self._lm.model.generation_config, settings)
        require_end_ids(self._lm.tokenizer, self._own_end_ids, arguments["pretrained"])
        embeddings = self._lm.model.get_input_embeddings().weight
        check_vocabulary(self._lm.tokenizer, embeddings.shape[0])
        # Take out settings of generation_config that would change responses
        self._ignored = neutralise_generation_config(self._lm.model)
        self._notes: list[str] = []
        if note := describe_slow_dtype(
            self._lm.device.type, str(self._lm.model.dtype), "--model-args dtype=float32"
        ):
            self._notes.append(note)
        if self._ignored:
            self._notes.append(format_ignored_entries(arguments["pretrained"], self._ignored))
        # Prepare decoding
        if adapter is not None:
            self._lm._model = merge_adapter(self._lm._model, adapter, self._lm.pretrained)
        self._loop = DecodeLoop(self._lm.model, self._lm.device, self._autocast)
        if self._loop.reason:
            self._notes.append(f"{NO_PROMPT_CACHE}: {self._loop.reason}")
        size = str(arguments["batch_size"])
        self._batch_size = AUTO_BATCH_SIZE if size.startswith("auto") else int(size)
        self._settings = settings
        self._arguments = arguments
        self._adapter = adapter

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Generate the responses to every request, in order; see ``protocols.Sampler``.

        A prompt that does not fit with ``max_gen_toks`` new tokens gets ``beyond_context``.

        Raises:
            UserError: a prompt is empty, or the chat template refuses its turns.
            GapftError: memory is too small for a single response.
        """
        while self._notes:
            report(0, 0, self._notes.pop(0))
        # Encode the prompts; a prompt beyond the context gets no rows
        texts = [self._render(request) for request in requests]
        ids = {
            text: replace_start_ids(self._lm.tok_encode(text), self._start_ids)
            for text in set(texts)
        }
        prompts = [ids[text] for text in texts]
        fits = find_fitting(requests, list(map(len, prompts)), decoding, self._lm.max_length)
        rows = {
            number: _build_rows(number, request, decoding)
            for number, (request, fit) in enumerate(zip(requests, fits, strict=True))
            if fit
        }
        # Decode all rows, in smaller batches if the memory does not suffice
        ends = frozenset(find_end_ids(self._lm.tokenizer, self._own_end_ids, decoding.until))
        stops = decoding.until
        endings = StopRules(ends, decoding.max_gen_toks, stops, self._decode_all)
        count = len(requests) * max((len(request.indices) for request in requests), default=0)
        first_size = max(1, min(self._batch_size, count))
        size = generate_in_batches(
            lambda size: self._loop.generate(
                prompts, chain.from_iterable(rows.values()), decoding, endings, size, report
            ),
            first_size,
            report,
        )
        if size < first_size:
            self._batch_size = size
        # lm-eval also cuts at the text of the tokenizer's end token, if a model spells it out.
        stops += (self._lm.tok_decode(self._lm.eot_token_id, skip_special_tokens=False),)
        return [
            build_generated(
                prompts[number],
                texts[number],
                (cut_response(row.ids, ends, stops, self._decode) for row in rows[number]),
            )
            if number in rows
            else beyond_context(request)
            for number, request in enumerate(requests)
        ]

    def _describe_engine(self) -> dict[str, Any]:
        reason = self._loop.reason
        return {
            "architecture": type(self._lm.model).__name__,
            "parameters": int(self._lm.model.num_parameters()),
            "dtype": str(self._lm.model.dtype).removeprefix("torch."),
            "device": str(self._lm.device),
            "batch_size": str(self._arguments["batch_size"]),
            "prompt_cache": f"not repeated: {reason}" if reason else "repeated",
        }

    def close(self) -> None:
        """Release the model's memory."""
        self._lm = self._loop = None  # type: ignore[assignment]
        clear_device_cache(garbage_collection=True)

    def _render(self, request: Request) -> str:
        arguments = self._lm.chat_template_args
        return render_request(self._lm.tokenizer, arguments, self._settings, request)

    def _autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which lm-eval's model generates."""
        dtype = self._lm.mixed_precision_dtype
        return torch.autocast(self._lm.device.type, dtype=dtype, enabled=dtype is not None)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._lm.tok_decode(ids)
        return text

    def _decode_all(self, ids: list[list[int]]) -> list[str]:
        texts: list[str] = self._lm.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts


def _build_rows(prompt: int, request: Request, decoding: Decoding) -> list[Row]:
    """Return the rows of one request, with samples in blocks; a deployment decode is a block."""
    return [
        Row(
            prompt,
            index // BLOCK,
            np.random.Generator(np.random.PCG64(seed)).random(decoding.max_gen_toks)
            if decoding.for_index(index).do_sample
            else None,
        )
        for index, seed in zip(request.indices, request.seeds, strict=True)
    ]
