"""SGLang through lm-eval's models for its engine and its server, which return only text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import aiohttp

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Adapter, Decoding
from gapft_harness.hooks.protocols import (
    Generated,
    ReportGeneration,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, summarize_error
from gapft_harness.lm_eval_bridge.samplers.text import (
    LmEvalSampler,
    build_generation_kwargs,
    find_fitting,
)


class SglangSampler(LmEvalSampler):
    """lm-eval's ``sglang`` model, which uses its own random stream.

    Its samples are independent; seeds have no effect.

    Args:
        settings: the recipe's settings of the sampler.
        adapter: must be None.
    """

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Start the engine, or prepare requests to the server.

        Start tokens are as with the ``hf`` backend; lm-eval's models for SGLang add none by
        default.

        Raises:
            UserError: SGLang or a tokenizer is missing, an adapter was given, or an argument is
                refused.
        """
        model_args = dict(settings.model_args)
        model_args.setdefault("add_bos_token", not settings.chat_template)
        settings = replace(settings, model_args=model_args)
        self._tokens = Retokenizer(settings)
        super().__init__(settings, adapter, self._tokens)

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Generate the responses to every request, in order; seeds have no effect.

        A prompt that does not fit gets ``beyond_context``; lm-eval would silently cut its
        beginning.

        Raises:
            UserError: a prompt is empty, or ``max_gen_toks`` leaves no room for any prompt.
            GapftError: the server failed.
        """
        prompts = self._tokens.prompt_ids([self._tokens.render(request) for request in requests])
        lengths = [len(ids) for ids in prompts]
        fits = find_fitting(requests, lengths, decoding, int(self._lm.max_length))
        fitting = [request for request, fit in zip(requests, fits, strict=True) if fit]
        try:
            answers = iter(super().generate(fitting, decoding, report) if fitting else [])
            return [
                next(answers) if fit else beyond_context(request)
                for request, fit in zip(requests, fits, strict=True)
            ]
        except (OSError, aiohttp.ClientError, KeyError) as error:
            raise GapftError(
                f"model.backend: the lm-eval model {self._settings.backend!r} failed: "
                f"{summarize_error(error)}"
            ) from error

    def _build_kwargs(self, decoding: Decoding) -> dict[str, Any]:
        """Return the decoding in lm-eval's form; SGLang writes "no top-k" as -1, not 0."""
        kwargs = build_generation_kwargs(decoding)
        if kwargs.get("top_k") == 0:
            kwargs["top_k"] = -1
        return kwargs
