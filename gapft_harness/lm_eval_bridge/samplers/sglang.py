"""SGLang through lm-eval's models for its engine and its server: their text alone."""

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
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, first_line
from gapft_harness.lm_eval_bridge.samplers.text import LmEvalSampler, generation_kwargs, which_fit


class SglangSampler(LmEvalSampler):
    """SGLang draws from a stream of its own: samples are independent, seeds change nothing."""

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Starts the engine, or makes ready to ask the server.

        Start tokens are those of the ``hf`` backend: lm-eval's models for SGLang add none unless
        told to.

        Raises:
            UserError: SGLang or a tokenizer is missing, an adapter was given, or an argument is
                refused.
        """
        given = dict(settings.model_args)
        given.setdefault("add_bos_token", not settings.chat_template)
        settings = replace(settings, model_args=given)
        self._tokens = Retokenizer(settings)
        super().__init__(settings, adapter, self._tokens)

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Answers every request, in order; seeds change nothing.

        A prompt that does not fit gets ``beyond_context``; lm-eval would cut its beginning in
        silence.

        Raises:
            UserError: a prompt is empty, or no prompt can fit beside so many new tokens.
            GapftError: the server failed.
        """
        prompts = self._tokens.prompt_ids([self._tokens.render(request) for request in requests])
        lengths = [len(ids) for ids in prompts]
        fits = which_fit(requests, lengths, decoding, int(self._lm.max_length))
        fitting = [request for request, fit in zip(requests, fits, strict=True) if fit]
        try:
            answers = iter(super().generate(fitting, decoding, report) if fitting else [])
            return [
                next(answers) if fit else beyond_context(request)
                for request, fit in zip(requests, fits, strict=True)
            ]
        except (OSError, aiohttp.ClientError, KeyError) as error:
            raise GapftError(
                f"the lm-eval model {self._settings.backend!r} failed: {first_line(error)}"
            ) from error

    def _kwargs(self, decoding: Decoding) -> dict[str, Any]:
        """SGLang spells "no top-k cut" -1 and refuses 0."""
        kwargs = generation_kwargs(decoding)
        if kwargs.get("top_k") == 0:
            kwargs["top_k"] = -1
        return kwargs
